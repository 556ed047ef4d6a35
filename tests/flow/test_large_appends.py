"""Appends that are imported as segments: results, idempotency keys, order, and refusals."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.open_admission import open_admission
from tests.log.harness import Lab, records
from tests.support.appending import Appended, ByHand, append, write_of
from topics.core.errors import ApiError
from topics.flow.large_appends import LARGE_BYTES, LARGE_RECORDS, append_large, is_large
from topics.log import ImportFiles
from topics.log.write.commit_loop import CommitLoop


class LargeAppends:
    """A log, and the results of the large appends to it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.appended: list[Appended] = []
        self.refused: list[str] = []

    def request(self, name: str, key: str | None = None, *, create: bool | None = None) -> ByHand:
        encoded = None if key is None else key.encode()
        request = ByHand(name, b"", self.appended.append, self._refuse, encoded)
        request.create = create
        return request

    def _refuse(self, error: ApiError) -> None:
        self.refused.append(error.code)

    def note(self, name: str, value: object) -> None:
        """Append a small record without waiting for the result."""
        body = json.dumps({"records": [{"data": value}]}).encode()
        append(self.lab.engine, name, body, self.appended.append, self._refuse)

    async def append(self, name: str, *values: object, key: str | None = None) -> None:
        """The values arrive in two pieces of one request."""
        half = len(values) // 2 or 1
        pieces = [piece for piece in (values[:half], values[half:]) if piece]
        writes = [
            write_of(json.dumps({"records": [{"data": value} for value in piece]}).encode())
            for piece in pieces
        ]
        engine = self.lab.engine
        await append_large(engine, open_admission(engine), self.request(name, key), writes, is_patient=False)

    def run(self, *work: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            commit = CommitLoop(self.lab.engine, asyncio.get_running_loop())
            try:
                await asyncio.gather(*(each() for each in work))
                await commit.drain()
            finally:
                commit.close()

        asyncio.run(main())

    def data(self, name: str) -> list[Any]:
        return [record["data"] for record in records(self.lab.diff(name))]

    def seqs(self) -> list[tuple[int, int]]:
        return [(each.first_seq, each.last_seq) for each in self.appended]


@pytest.fixture
def large(tmp_path: Path) -> LargeAppends:
    return LargeAppends(Lab(tmp_path / "data"))


def during_the_import(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], *, before: object = ImportFiles.sync
) -> None:
    """Run `action` once before a step of the next import: by default when its segments are written."""

    async def to_thread(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if getattr(work, "__func__", None) is before:
            monkeypatch.undo()
            action()
        return work(*arguments, **options)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)


@pytest.mark.parametrize(
    ("count", "size", "large"),
    [(1, LARGE_BYTES, False), (1, LARGE_BYTES + 1, True), (LARGE_RECORDS + 1, 1, True)],
)
def test_bytes_or_records_make_an_append_large(count: int, size: int, large: bool) -> None:
    assert is_large(count, size) is large


def test_the_pieces_of_a_request_become_consecutive_records_in_a_segment(large: LargeAppends) -> None:
    large.run(lambda: large.append("new", 1, 2, 3, 4, 5))
    assert (large.seqs(), large.appended[0].created) == ([(1, 5)], True)
    assert len(large.lab.segment_files()) == 1
    large.run(lambda: large.append("new", 6))
    assert (large.seqs()[1:], large.appended[1].created) == ([(6, 6)], False)
    large.lab.restart()
    assert large.data("new") == [1, 2, 3, 4, 5, 6]


def test_a_key_that_is_repeated_during_the_import_waits_for_its_result(
    large: LargeAppends, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_the_import(
        monkeypatch,
        lambda: large.lab.engine.append(
            ByHand("t", b'{"records":[{"data":1}]}', repeated, pytest.fail, b"k")
        ),
    )
    found: list[Appended] = []
    repeated = found.append
    large.run(lambda: large.append("t", 1, 2, key="k"))
    assert [(each.first_seq, each.count, each.deduped) for each in found] == [(1, 2, True)]


def test_a_refused_import_leaves_neither_records_nor_files_nor_its_key(
    large: LargeAppends, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.lab.write("t", 0)

    def no_room() -> None:
        large.note("t", "later")
        raise OSError(errno.ENOSPC, "No space left on device")

    during_the_import(monkeypatch, no_room)
    large.run(lambda: large.append("t", 1, 2, key="k"))
    # The append that waited for the import fails with it, because its seqs would follow.
    assert sorted(large.refused) == ["disk_full", "throttled"]
    assert large.lab.segment_files() == []
    large.run(lambda: large.append("t", 1, 2, key="k"))
    assert large.seqs() == [(2, 3)]
    large.lab.restart()
    assert large.data("t") == [0, 1, 2]


def test_a_cancelled_import_gives_back_its_seqs(large: LargeAppends, monkeypatch: pytest.MonkeyPatch) -> None:
    large.lab.put("t")

    async def cancelled() -> None:
        task = asyncio.ensure_future(large.append("t", 1, 2))
        during_the_import(monkeypatch, task.cancel, before=ImportFiles.write)
        await asyncio.wait([task])
        assert task.cancelled()

    large.run(cancelled)
    assert large.lab.write("t", "after").first_seq == 1
    for _ in range(3):
        large.lab.checkpoint()
    assert large.lab.segment_files() == []

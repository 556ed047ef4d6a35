"""Commits that are too large for one frame: written into segments that the journal imports."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stages.lab import LargeLab, anything_goes, request_of
from tests.support.appending import append
from tests.support.arrow import arrow_stream
from tests.support.disk import QuickDisk
from topics.core.errors import ApiError
from topics.log import ImportFiles
from topics.storage.frame import FrameDraft, Kind

Meanwhile = Callable[[], object]
ROWS = {"topic": ["a", "b", "a", "a", "b", "a"], "data": ["1", "2", "3", "4", "5", "6"]}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Meanwhile], None]:
    """Something happens while the rows of the next large commit are written."""

    def happens(what: Meanwhile) -> None:
        fill = ImportFiles.fill

        async def here(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
            result = work(*arguments, **more)
            if getattr(work, "__func__", None) is fill:
                monkeypatch.undo()
                what()
            return result

        monkeypatch.setattr(asyncio, "to_thread", here)

    return happens


class Others:
    """Writers who do not wait for their answers."""

    def __init__(self, lab: LargeLab) -> None:
        self._lab = lab
        self.answers: list[tuple[str, int]] = []
        self.refusals: list[str] = []

    def append(self, name: str, data: Any) -> None:
        append(
            self._lab.engine,
            name,
            json.dumps({"records": [{"data": data}]}).encode(),
            lambda appended: self.answers.append((name, appended.first_seq)),
            lambda error: self.refusals.append(error.code),
        )

    def flush(self) -> None:
        self._lab.engine.queue.sync_now()


def test_what_comes_to_the_same_topics_waits_behind_it_and_nothing_else_does(
    large_lab: LargeLab, meanwhile: Callable[[Meanwhile], None]
) -> None:
    lab, others = large_lab, Others(large_lab)
    lab.write("a", "before")
    lab.write("c", "before")
    seen: list[Any] = []

    def write() -> None:
        for name in ("a", "c"):
            others.append(name, "meanwhile")
        others.flush()
        seen.append((list(others.answers), lab.data("a"), lab.data("c"), lab.engine.queue.depth))

    meanwhile(write)
    lab.part("0", ROWS)
    assert lab.commit_stage("0") == ({"a": (2, 5, 4), "b": (1, 2, 2)}, False)
    assert seen == [([("c", 2)], ["before"], ["before", "meanwhile"], 2)]
    assert others.answers == [("c", 2), ("a", 6)]
    assert lab.data("a") == ["before", 1, 3, 4, 6, "meanwhile"]
    assert lab.engine.queue.depth == 0
    times = [json.loads(row)["$ts"] for row in lab.diff("a").rows.splitlines()]
    assert times == sorted(times)


def test_segments_are_durable_before_the_journal_imports_them(tmp_path: Path) -> None:
    lab = LargeLab(tmp_path)
    lab.write("a", "before")
    lab.part("0", ROWS)
    seen: list[str] = []
    synced: list[list[str]] = []

    def note(operation: str, path: Path) -> None:
        if operation in ("sync", "rename", "sync_dir"):
            seen.append(f"{operation} {''.join(path.suffixes) or path.name}")

    lab.engine.fs = QuickDisk(note)
    write = lab.engine.journal.write

    def noting(frames: list[FrameDraft]) -> None:
        if any(frame.kind == Kind.GROUP for frame in frames):
            synced.append(list(seen))
        write(frames)

    lab.engine.journal.write = noting  # type: ignore[method-assign]
    lab.commit_stage("0")
    assert synced == [["sync .segment.tmp", "rename .segment", "sync_dir segments"]]


@pytest.mark.parametrize("snapshots", [0, 1, 2])
def test_the_journal_answers_for_its_segments_until_snapshots_do(large_lab: LargeLab, snapshots: int) -> None:
    """From the newest snapshot, and from the one before it."""
    lab = large_lab
    lab.write("a", "before")
    lab.checkpoint()
    lab.checkpoint()
    lab.part("0", ROWS)
    lab.commit_stage("0")
    for _ in range(snapshots):
        lab.checkpoint()
    state = lab.states()
    lab.restart()
    assert lab.states() == state
    lab.kill()
    sorted((lab.directory / "snapshots").iterdir())[-1].unlink()
    lab.open()
    assert lab.states() == state
    assert lab.data("a") == ["before", 1, 3, 4, 6]
    assert lab.commit_stage("0") == ({"a": (2, 5, 4), "b": (1, 2, 2)}, True)


def test_after_a_restart_no_segment_is_written_over_one_that_was_adopted(large_lab: LargeLab) -> None:
    lab = large_lab
    lab.write("a", "before")
    lab.checkpoint()
    for number in range(2):
        lab.part("0", ROWS, stage=f"s{number}")
        lab.commit_stage("0", stage=f"s{number}", batch=number)
    imported = {path.name: path.read_bytes() for path in lab.segment_files()}
    lab.restart()
    lab.write_each("c", 8)
    lab.checkpoint(everything=True)
    files = {path.name: path.read_bytes() for path in lab.segment_files()}
    assert len(files) > len(imported)
    assert {name: files[name] for name in imported} == imported
    lab.restart()
    assert lab.data("a") == ["before", 1, 3, 4, 6, 1, 3, 4, 6]


def test_a_file_that_is_empty_again_stays_as_long_as_the_journal_speaks_of_it(large_lab: LargeLab) -> None:
    """A recovery from the older snapshot imports it and deletes from it as the first time."""
    lab = large_lab
    lab.put("a", cap_records=3)
    lab.write("a", "before")
    lab.checkpoint()
    body, replay_from = lab.checkpointer.capture()
    # While that snapshot is written, records are imported and deleted.
    lab.part("0", {"data": ["1", "2", "3", "4", "5"]}, topic="a")
    lab.commit_stage("0")
    (imported,) = lab.segment_files()
    lab.delete("a")
    lab.checkpointer.write_snapshot(body)
    lab.checkpointer.remove(lab.checkpointer.release(replay_from))
    lab.checkpoint()
    assert imported in lab.segment_files()
    lab.checkpoint()
    lab.checkpoint()
    assert lab.segment_files() == []


def test_a_file_that_is_closed_meanwhile_does_not_speak_of_it(
    large_lab: LargeLab, meanwhile: Callable[[Meanwhile], None]
) -> None:
    """The heads that close a file of the journal are those of records that are in it."""
    lab, others = large_lab, Others(large_lab)
    lab.write("a", "before")

    def rotate() -> None:
        others.append("a", "behind")
        lab.engine.rotate()
        raise KeyboardInterrupt

    meanwhile(rotate)
    lab.part("0", ROWS)
    with pytest.raises(KeyboardInterrupt):
        lab.commit_stage("0")
    lab.restart()
    assert lab.topic("a").head == 1
    assert lab.engine.totals.damage == 0
    assert lab.write("a", "after").first_seq == 2


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_it_and_nothing_stays(
    tmp_path: Path, meanwhile: Callable[[Meanwhile], None]
) -> None:
    lab = LargeLab(tmp_path)
    lab.write("a", "before")
    lab.part("0", ROWS)
    others = Others(lab)

    def refuse(operation: str, path: Path) -> None:
        if operation == "write" and ".segment" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    lab.engine.fs = QuickDisk(refuse)

    def write() -> None:
        others.append("a", "behind")
        others.flush()

    meanwhile(write)
    with pytest.raises(ApiError) as refused:
        lab.commit_stage("0")
    assert refused.value.code == "disk_full"
    assert others.refusals == ["throttled"]
    assert lab.segment_files() == []
    assert lab.topic("a").head == 1
    assert (lab.engine.totals.pending_bytes, lab.engine.by_name["a"].pending_count) == (0, 0)
    lab.engine.fs = lab.disk
    # Others go on, the seqs are given out again, and the same commit finds its parts.
    assert lab.write("a", "after").first_seq == 2
    assert lab.commit_stage("0") == ({"a": (3, 6, 4), "b": (1, 2, 2)}, False)
    state = lab.states()
    lab.restart()
    assert lab.states() == state


@pytest.mark.parametrize("is_over", [False, True])
def test_an_append_that_is_refused_takes_a_commit_behind_it_along(
    large_lab: LargeLab, meanwhile: Callable[[Meanwhile], None], is_over: bool
) -> None:
    """Its seqs come behind those that are given out anew, also if there is room again when it is written."""
    lab, others = large_lab, Others(large_lab)
    lab.write("a", "before")
    lab.part("0", ROWS)
    lab.engine.reserve.give = lambda needed, keep=0: False  # type: ignore[method-assign]
    write = lab.engine.journal.write
    others.append("a", "just before")
    written = lab.engine.counters.frames

    def full(buffers: list[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush() -> None:
        lab.engine.journal.write = full  # type: ignore[method-assign]
        others.flush()
        lab.engine.journal.write = write  # type: ignore[method-assign]
        if is_over:
            lab.engine.queue.refusals.resume()

    meanwhile(flush)

    async def commit() -> None:
        # The loop would write what waits before the commit begins.
        await lab.stages.commit(request_of("0"))

    with pytest.raises(ApiError) as refused:
        asyncio.run(commit())
    assert (refused.value.code, others.refusals) == ("disk_full", ["disk_full"])
    assert lab.segment_files() == []
    # Nor is it counted, or a place kept for its identity.
    assert lab.engine.counters.frames == written
    assert not any(owner.under_way for owner in lab.stages.identities._owners.values())
    lab.engine.queue.refusals.resume()
    assert lab.write("a", "after").first_seq == 2


TWICE = {name: cells * 2 for name, cells in ROWS.items()}


@pytest.mark.parametrize(
    "again", [TWICE, {"topic": ["a"], "data": ["1"]}, {"topic": ["c"], "data": ["1"]}, None]
)
def test_a_part_that_is_sent_again_or_dropped_meanwhile_refuses_it(
    large_lab: LargeLab, monkeypatch: pytest.MonkeyPatch, again: dict[str, list[Any]] | None
) -> None:
    """Its rows were counted, and seqs are given out for so many; they are read when they are written."""
    lab = large_lab
    lab.write("a", "before")
    lab.part("0", ROWS)
    wait_for_turn = lab.stages._wait_for_turn

    async def meanwhile(amounts: Any) -> None:
        await wait_for_turn(amounts)
        if again is None:
            await lab.stages.drop("", "s")
        else:
            await lab.stages.put_part("", "s", "0", arrow_stream(again), None, anything_goes)

    with monkeypatch.context() as patched:
        patched.setattr(lab.stages, "_wait_for_turn", meanwhile)
        with pytest.raises(ApiError, match="commit again") as refused:
            lab.commit_stage("0")
    assert refused.value.code == "throttled"
    # Nobody waits behind it, and its seqs are given out again.
    assert lab.write("a", "after").first_seq == 2
    state = lab.state("a")
    lab.restart()
    assert lab.state("a") == state
    if again is not None:
        lab.commit_stage("0")
    assert len(lab.data("a")) == 2 + (again or {"topic": []})["topic"].count("a")


def test_whatever_goes_wrong_nobody_waits_behind_it(
    large_lab: LargeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = large_lab
    lab.write("a", "before")
    lab.part("0", ROWS)

    def fail(files: ImportFiles) -> None:
        raise ValueError("a mistake of ours")

    with monkeypatch.context() as patched:
        patched.setattr(ImportFiles, "sync", fail)
        with pytest.raises(ApiError, match="a mistake of ours"):
            lab.commit_stage("0")
    assert lab.segment_files() == []
    assert lab.write("a", "after").first_seq == 2
    assert lab.commit_stage("0") == ({"a": (3, 6, 4), "b": (1, 2, 2)}, False)


def test_a_damaged_import_assigns_no_seq_again(large_lab: LargeLab) -> None:
    """It takes a few bytes of journal, and thousands of seqs."""
    lab = large_lab
    lab.write("a", "before")
    lab.part("0", {"topic": ["a", "b"] * 3000, "data": ["1"] * 6000})
    lab.commit_stage("0")
    lab.engine.queue.sync_journal()
    lab.write("c", "later")
    lab.engine.queue.sync_journal()
    lab.write("c", "later")
    (group,) = [frame for frame in lab.frames() if frame.kind == Kind.GROUP]
    lab.kill()
    content = bytearray(group.path.read_bytes())
    content[group.payload_at] ^= 0xFF
    group.path.write_bytes(content)
    lab.disk.boot = b"boot-2"
    lab.open()
    assert lab.write("a", "after").first_seq > 3001

"""Purges: what was deleted is nowhere on the disk any more, and nothing else has changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import Lab
from tests.support.damage import flip
from topics.core.errors import ApiError
from topics.flow.checkpoints import Checkpoints
from topics.flow.pins import SegmentPins
from topics.log.read.render import Shape
from topics.log.write.commit_loop import CommitLoop
from topics.ops import purge as purge_module
from topics.ops.purge import Purge, Purges
from topics.ops.purge_segments import FilePlan, SegmentPurge
from topics.storage.filesystem import AHEAD, Filesystem
from topics.storage.identity import Owner, write_owner
from topics.storage.segment import file_name

SECRET, TAG, NODE = "a-secret-payload", "tag-of-somebody", "node-of-somebody"
TAGGED = Shape(tags=True)


def run(lab: Lab, action: Callable[[Purges], Coroutine[Any, Any, Any]]) -> Any:
    """Do something with the purges of an engine that runs on a loop for as long."""

    async def driven() -> Any:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            return await action(Purges(lab.engine, Checkpoints(lab.engine, commit, lab.checkpointer)))
        finally:
            await commit.drain()
            commit.close()

    return asyncio.run(asyncio.wait_for(driven(), 30))


async def ended(purge: Purge) -> Purge:
    while not purge.is_over:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return purge


def purge(lab: Lab, topics: Sequence[str] | None = None) -> Purge:
    async def action(purges: Purges) -> Purge:
        return await ended(purges.start(topics))

    done: Purge = run(lab, action)
    assert done.state == "done", done.error
    return done


def found(directory: Path, *texts: str) -> list[str]:
    """Which files hold one of the texts."""
    return [
        path.name
        for path in sorted(directory.rglob("*"))
        if path.is_file() and any(text.encode() in path.read_bytes() for text in texts)
    ]


def content(lab: Lab) -> dict[str, Any]:
    """Everything a reader can get, byte by byte, and everything the topics say about themselves."""
    names = lab.engine.names_after("", "")
    return {name: (lab.state(name), lab.diff(name, shape=TAGGED).rows, lab.diff(name).rows) for name in names}


def secret(number: int, **fields: Any) -> dict[str, Any]:
    return {"data": f"{SECRET} {number}", "tag": TAG, "node": NODE, "meta": {"m": SECRET}, **fields}


def plain(number: int) -> dict[str, Any]:
    return {"data": {"n": number}, "tag": f"keep{number % 3}", "node": "n1", "meta": {"k": number}}


def mixed(lab: Lab, topic: str, count: int) -> None:
    for number in range(count):
        lab.write(topic, secret(number) if number % 3 == 1 else plain(number))


def check(lab: Lab) -> None:
    """Purge, and see that only the bytes have gone: now, after a kill, and after another one."""
    assert found(lab.directory, SECRET, TAG, NODE)
    before = content(lab)
    purge(lab)
    assert found(lab.directory, SECRET, TAG, NODE) == []
    assert content(lab) == before
    for clean in (False, True, False):
        lab.restart(clean=clean)
        assert content(lab) == before
    assert found(lab.directory, SECRET, TAG, NODE) == []


def test_deleted_in_the_tail(tmp_path: Path) -> None:
    lab = Lab(tmp_path, segment_max_events=100)
    mixed(lab, "t", 7)
    lab.delete("t", match=TAG)
    check(lab)


def test_deleted_before_and_after_sealing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 10)
    lab.delete("t", before=3)
    lab.checkpoint()
    lab.delete("t", match=TAG)
    check(lab)


def test_evicted_records_and_everything_deleted(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.put("capped", cap_records=2)
    for number in range(7):
        lab.write("capped", secret(number))
    lab.write("capped", plain(1), plain(2))
    mixed(lab, "emptied", 6)
    lab.checkpoint()
    lab.delete("emptied")
    check(lab)


def test_what_is_too_old_although_nobody_has_looked_since(tmp_path: Path) -> None:
    lab = Lab(tmp_path, segment_max_events=4)
    for name in ("partly", "wholly"):
        lab.put(name, ttl_ms=1000)
        for number in range(6):
            lab.write(name, secret(number))
    lab.checkpoint()
    lab.clock.advance(700)
    lab.write("partly", plain(1))
    lab.clock.advance(700)
    purge(lab)
    assert found(tmp_path, SECRET, TAG, NODE) == []
    assert [lab.lines(name) for name in ("partly", "wholly")] == [(7, 7, 7), (6, 7, 7)]


def test_dropped_topics_in_files_shared_with_others(tmp_path: Path) -> None:
    lab = Lab(tmp_path, segment_max_events=100)
    for name in ("a", "gone", "b"):
        mixed(lab, name, 5)
    lab.checkpoint(everything=True)
    assert len(lab.segment_files()) == 1
    lab.drop("gone")
    lab.delete("a", match=TAG)
    lab.delete("b", match=TAG)
    check(lab)


def test_the_second_tier(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "data", cold_dir=str(tmp_path / "cold"), hot_retain_segments=1)
    mixed(lab, "t", 16)
    lab.checkpoint(everything=True)
    assert purge(lab).files_rewritten == 0  # the upkeep of which moves old files
    assert lab.engine.store.cold
    lab.delete("t", match=TAG)
    before, cold = content(lab), set(lab.engine.store.cold)
    assert found(tmp_path / "cold", SECRET)
    # What a crash in the middle of a move leaves behind.
    stale = tmp_path / "cold" / "0000000000000999.segment"
    shutil.copy(min((tmp_path / "cold").glob("*.segment")), stale)
    purge(lab)
    assert found(tmp_path, SECRET, TAG) == []
    assert len(lab.engine.store.cold) == len(cold)
    lab.restart()
    assert content(lab) == before


def test_what_is_not_ours_in_the_second_tier(tmp_path: Path) -> None:
    """It stays, and a file that is written anew goes where its name is free."""
    cold = tmp_path / "cold"
    cold.mkdir()
    write_owner(Filesystem(), str(cold), Owner("ab" * 16, str(tmp_path / "data")))
    lab = Lab(tmp_path / "data", cold_dir=str(cold), hot_retain_segments=1)
    mixed(lab, "t", 16)
    lab.checkpoint(everything=True)
    purge(lab)
    lab.delete("t", match=TAG)
    before, moved = content(lab), set(lab.engine.store.cold)
    others = [cold / file_name(lab.engine.next_segment), cold / file_name(999), cold / "notes.tmp"]
    for path in others:
        path.write_bytes(b"of another")
    purge(lab)
    assert found(tmp_path, SECRET, TAG) == []
    assert [path.read_bytes() for path in others] == [b"of another"] * 3
    assert len(lab.engine.store.cold) == len(moved) - 1
    lab.restart()
    assert content(lab) == before
    assert [path.read_bytes() for path in others] == [b"of another"] * 3


def test_the_journal_file_that_was_written_ahead_stays(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "data")
    lab.put("t")
    lab.write("t", 1)
    # It begins a journal file at first, and uses up what there is; this one was made meanwhile.
    lab.engine.ahead.make(64 * 1024)
    SegmentPurge(lab.engine, None).sweep()
    assert (Path(lab.engine.dirs.journal) / AHEAD).exists()
    lab.engine.rotate()
    assert lab.engine.journal.is_ahead
    lab.write("t", 2)
    lab.restart()
    assert lab.seqs("t") == [1, 2]
    lab.kill()


def test_tears_that_were_put_aside(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("t", plain(0))
    lab.kill()
    with lab.journal_files()[-1].open("ab") as journal:
        journal.write(b"half a frame with " + SECRET.encode())
    lab.disk.boot = b"boot-2"
    lab.open()
    assert found(tmp_path, SECRET)
    purge(lab)
    assert found(tmp_path, SECRET) == []


def test_copies_outlive_the_records_they_were_made_from(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, segment_max_events=100)
    lab.route("r", "source", "copies")
    for number in range(5):
        lab.write("source", {"data": f"copied {number}", "tag": TAG})
    lab.background()
    lab.delete("source")
    before = content(lab)
    purge(lab)
    assert content(lab) == before
    lab.restart()
    assert content(lab) == before
    assert len(lab.seqs("copies")) == 5
    lab.delete("copies", match=TAG)
    purge(lab)
    assert found(tmp_path, "copied", TAG) == []


def test_a_second_purge_has_nothing_to_do(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 12)
    lab.delete("t", match=TAG)
    first = purge(lab)
    assert (first.files_rewritten, first.records) == (3, 4)
    assert first.journal_bytes > 0
    again = purge(lab)
    assert (again.files_examined, again.files_rewritten, again.records) == (again.files, 0, 0)
    # Blanks are ordinary rows: what is deleted next goes with them.
    lab.delete("t", match="keep0")
    assert purge(lab).records > 0


def test_only_so_many_wait_and_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge_module, "MAX_WAITING", 2)
    monkeypatch.setattr(purge_module, "REMEMBERED", 3)
    lab = Lab(tmp_path)
    lab.write("t", 1)

    async def action(purges: Purges) -> None:
        begun = []
        for _ in range(4):
            begun += [purges.start(), purges.start()]
            with pytest.raises(ApiError) as refusal:
                purges.start()
            assert refusal.value.detail == {"limit": "max_purges", "max": 2}
            for each in begun[-2:]:
                await ended(each)
            await asyncio.sleep(0)
        assert [purges.find(each.id) is not None for each in begun] == [False] * 3 + [True] * 5

    run(lab, action)


def test_only_the_topics_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, segment_max_events=3)
    for name in ("a", "b"):
        for number in range(6):
            lab.write(name, {"data": f"{name}-{SECRET}-{number}", "tag": "x" if number % 2 else "y"})
        lab.checkpoint(everything=True)
        lab.delete(name, match="x")
    purge(lab, ["a"])
    assert found(tmp_path, f"a-{SECRET}-1") == []
    assert found(tmp_path, f"b-{SECRET}-1") != []
    purge(lab)
    assert found(tmp_path, f"b-{SECRET}-1") == []


def test_files_that_readers_hold_are_waited_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 8)
    lab.checkpoint(everything=True)
    pins = SegmentPins(lab.engine)
    snapshot = pins.take(lab.topic("t"))
    lab.delete("t", match=TAG)

    async def action(purges: Purges) -> None:
        begun = purges.start()
        while not begun.files_held:
            assert not begun.is_over
            await asyncio.sleep(0.001)
        assert found(tmp_path, SECRET)
        assert {os.path.basename(pinned.path) for pinned in snapshot.runs} <= set(found(tmp_path, ""))
        pins.release(lab.topic("t"), snapshot.id)
        assert (await ended(begun)).state == "done"

    run(lab, action)
    assert found(tmp_path, SECRET) == []


def test_deletes_while_a_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, segment_max_events=20)
    mixed(lab, "t", 20)
    lab.checkpoint(everything=True)
    lab.delete("t", match=TAG)
    adopt = SegmentPurge.adopt

    def delete_and_adopt(self: SegmentPurge, file: FilePlan) -> None:
        lab.delete("t", match="keep0")
        adopt(self, file)

    monkeypatch.setattr(SegmentPurge, "adopt", delete_and_adopt)
    purge(lab)
    left = content(lab)
    assert {record["n"] % 3 for record in _data(lab, "t")} == {2}
    for _ in range(3):
        lab.restart()
        assert content(lab) == left
        lab.checkpoint()


def _data(lab: Lab, topic: str) -> list[Any]:
    return [json.loads(line)["data"] for line in lab.diff(topic).rows.splitlines()]


def test_what_turns_out_to_be_damaged_is_announced(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 12)
    lab.checkpoint(everything=True)
    lab.delete("t", match=TAG)
    lab.restart()
    flip(lab.segment_files()[1], 40)
    purge(lab)
    assert found(tmp_path, SECRET) == []
    assert lab.gaps("t") == [(5, 8, "cap")]
    assert lab.seqs("t") == [1, 3, 4, 9, 10, 12]


# --- crashes --------------------------------------------------------------------------------------------


def test_a_purge_that_fails_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 5)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lab.engine.snapshots, "write", fail)

    async def action(purges: Purges) -> Purge:
        return await ended(purges.start())

    failed = run(lab, action)
    assert failed.state == "failed"
    assert "No space left" in (failed.error or "")
    (told,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert "No space left" in told.getMessage()
    assert not told.exc_info


def test_a_purge_that_ends_with_all_writes_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    mixed(lab, "t", 5)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "the disk refuses")

    monkeypatch.setattr(lab.engine.journal, "rotate", refuse)

    async def action(purges: Purges) -> Purge:
        return await ended(purges.start())

    failed = run(lab, action)
    assert failed.state == "failed"
    assert "the disk refuses" in (failed.error or "")
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [why for why in told if "writes are off" in why and "the disk refuses" in why]

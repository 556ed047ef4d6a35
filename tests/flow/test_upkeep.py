"""Upkeep: on a real server process, and turn by turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.flow.sealed import readable
from tests.log.harness import Lab
from tests.support import ServerProcess, eventually
from topics.core.errors import InvariantViolated, WritesOff
from topics.flow import upkeep
from topics.flow.checkpoints import Checkpoints, ColdTier
from topics.flow.pins import SegmentPins
from topics.flow.upkeep import Upkeep
from topics.log.seal import checkpoint
from topics.log.write.commit_loop import CommitLoop
from topics.storage.fileheader import mark_of
from topics.storage.filesystem import Filesystem
from topics.storage.identity import Identity, Owner, write_owner
from topics.storage.segment import file_name


@pytest.fixture
def small(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(
        tmp_path,
        TOPICS_SEGMENT_MAX_EVENTS="10",
        TOPICS_COLD_DIR=str(tmp_path / "cold"),
        TOPICS_HOT_RETAIN_SEGMENTS="2",
        TOPICS_HOT_BYTES="1",
    ).start()
    yield process
    process.stop()


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.segment")) if directory.exists() else []


def fill(server: ServerProcess, topic: str, batches: int) -> None:
    for _ in range(batches):
        server.post(f"/v0/topics/{topic}", {"records": [{"data": n, "tag": f"k{n}"} for n in range(10)]})


def read_all(server: ServerProcess, topic: str) -> list[tuple[int, int]]:
    page = server.post(f"/v0/topics/{topic}/diff", {"limit": 1000, "include_tags": True})
    return [(record["$seq"], record["data"]) for record in page["records"]]


def test_segments_appear_move_to_the_cold_tier_and_go(small: ServerProcess, tmp_path: Path) -> None:
    hot, cold = tmp_path / "data" / "segments", tmp_path / "cold"
    fill(small, "t", 6)
    everything = read_all(small, "t")
    eventually(lambda: len(segments(cold)) >= 3 and len(segments(hot)) <= 3, 20)
    assert read_all(small, "t") == everything
    small.kill()
    small.start()
    assert read_all(small, "t") == everything
    answer = small.post("/v0/topics/t/delete", {"before_seq": 41})
    assert answer["deleted"] == 40
    eventually(lambda: len(segments(cold)) + len(segments(hot)) <= 3, 20)
    assert read_all(small, "t") == everything[40:]


def test_stopping_waits_for_the_pass_that_is_under_way_and_for_no_other(tmp_path: Path) -> None:
    """A thread that still writes files would write them beside the last checkpoint."""
    lab = Lab(tmp_path)
    lab.write_each("t", 8)
    passes: list[str] = []
    write_snapshot = lab.checkpointer.write_snapshot

    def slowly(body: list[bytes]) -> None:
        passes.append("begun")
        time.sleep(0.1)
        write_snapshot(body)
        lab.checkpointer.sealer.is_behind = True  # there would be more to do
        passes.append("ended")

    async def scenario() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        upkeep = Upkeep(lab.engine, commit, lab.checkpointer)
        upkeep.start()
        while not passes:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await upkeep.stop()
        commit.close()

    lab.checkpointer.write_snapshot = slowly  # type: ignore[method-assign]
    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert passes == ["begun", "ended"]


def checkpoint_now(lab: Lab, *, upto: int = 0) -> None:
    async def driven() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            await Checkpoints(lab.engine, commit, lab.checkpointer).run(upto=upto)
        finally:
            commit.close()

    asyncio.run(driven())


def full(*_: object, **__: object) -> bool:
    raise OSError(28, "No space left on device")


def test_a_cold_directory_without_room_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is another disk: segments stay where they are, and appends go on."""
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0, segment_max_events=5)
    lab.write_each("t", 12)
    with monkeypatch.context() as patched:
        patched.setattr(ColdTier, "copy", full)
        checkpoint_now(lab)
    assert "the cold directory has no room" in caplog.text
    assert lab.engine.writes_off is None
    assert segments(tmp_path / "hot" / "segments")
    lab.write("t", 13)
    checkpoint_now(lab)
    assert segments(tmp_path / "cold")
    lab.stop()


def test_what_cannot_be_sealed_for_want_of_room_stays_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is written all the same, and whoever asked for the journal to go is told."""
    lab = Lab(tmp_path, segment_max_events=5)
    lab.write_each("t", 12)
    rows = lab.diff("t").rows
    passes = lab.checkpointer.passes
    with monkeypatch.context() as patched:
        patched.setattr("topics.storage.segment.SegmentWriter.write", full)
        checkpoint_now(lab)
        assert lab.checkpointer.passes == passes + 1
        with pytest.raises(OSError, match="no room for the records that have to leave the journal"):
            checkpoint_now(lab, upto=lab.engine.journal.position)
    assert not segments(tmp_path / "segments")
    lab.write("t", 13)
    checkpoint_now(lab)
    assert segments(tmp_path / "segments")
    lab.restart()
    assert lab.diff("t").rows.startswith(rows)
    lab.stop()


def test_the_space_of_a_large_job_comes_back_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "IDLE_JOURNAL_BYTES", 10_000)
    lab = Lab(tmp_path, segment_max_events=1000)
    lab.write_each("t", 150)
    lab.checkpoint()
    before = lab.seqs("t")
    assert lab.engine.journal.retained_bytes() > 10_000  # the run is half-full and waits for more

    async def turns() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        keeper = upkeep.Upkeep(lab.engine, commit, lab.checkpointer)
        await keeper._turn()
        lab.clock.advance(checkpoint.QUIET_MS)
        await keeper._turn()
        commit.close()

    asyncio.run(turns())
    assert lab.engine.journal.retained_bytes() < 1000
    assert sum(path.stat().st_size for path in lab.journal_files()) < 1000
    assert lab.seqs("t") == before
    lab.restart()
    assert lab.seqs("t") == before


Result = TypeVar("Result")


def driven(lab: Lab, work: Callable[[Upkeep], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            return await work(Upkeep(lab.engine, commit, lab.checkpointer))
        finally:
            commit.close()

    return asyncio.run(main())


def test_a_log_that_has_failed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its journal has on disk is in doubt, and a sync that succeeds later would prove nothing."""
    monkeypatch.setattr(upkeep, "enough_bytes", lambda _: 0)
    lab = Lab(tmp_path)
    lab.put("t", durability="ephemeral")
    lab.write("t", 1)
    journal = lab.engine.journal
    lab.engine.queue.give_up(OSError(5, "no"))
    before = journal.synced
    assert before < journal.position
    assert lab.engine.store.unsealed.bytes == 0, "it would be worth the while to let go of the journal"
    driven(lab, lambda keeper: keeper._turn())
    assert journal.synced == before
    lab.kill()


def test_a_violation_in_a_turn_of_upkeep_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, is_met = Lab(tmp_path), asyncio.Event()

    def contradict(_: int) -> None:
        is_met.set()
        raise InvariantViolated("a topic contradicts itself")

    async def work(keeper: Upkeep) -> None:
        keeper.start()
        await is_met.wait()
        await asyncio.sleep(0)
        await keeper.stop()

    monkeypatch.setattr(upkeep, "TICK_S", 0.01)
    monkeypatch.setattr(lab.engine.clock_mark, "extend", contradict)
    driven(lab, work)
    assert lab.engine.writes_off is WritesOff.STORAGE_FAILED
    lab.kill()


def test_pinned_files_are_not_moved_to_the_second_tier(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0)
    lab.write_each("a", 8)
    lab.checkpoint(everything=True)
    pins, tiers = SegmentPins(lab.engine), ColdTier(lab.engine)
    moving = asyncio.run(tiers.due())
    assert moving
    tiers.copy(moving[0])
    view = pins.take(lab.topic("a"))
    tiers.switch(moving[0])
    assert all(Path(run.path).exists() for run in view.runs)
    assert asyncio.run(tiers.due()) == []
    assert readable(lab, view, 1) == lab.seqs("a")
    pins.release(lab.topic("a"), view.id)
    assert asyncio.run(tiers.due()) == moving


@pytest.mark.parametrize(
    ("segments", "records", "moved"), [(0, 0, 3), (1, 0, 2), (0, 4, 2), (0, 3, 3), (2, 4, 1), (1, 8, 1)]
)
def test_the_newest_stay_so_many_segments_and_so_many_bytes(
    tmp_path: Path, segments: int, records: int, moved: int
) -> None:
    """Each segment has four records, of a byte each."""
    cold = str(tmp_path / "cold")
    settings = {"hot_retain_segments": segments, "hot_retain_bytes": records}
    lab = Lab(tmp_path / "hot", cold_dir=cold, **settings)
    lab.write("a", *[1] * 4)
    lab.write("a", *[1] * 4)
    lab.write("a", *[1] * 4)
    lab.checkpoint(everything=True)
    assert len(asyncio.run(ColdTier(lab.engine).due())) == moved
    lab.kill()


def test_a_segment_whose_name_is_taken_stays(tmp_path: Path) -> None:
    """What has the name there is not ours."""
    cold, identity = tmp_path / "cold", Identity("ab" * 16)
    cold.mkdir()
    write_owner(Filesystem(), str(cold), Owner(identity.identity, str(tmp_path / "hot")))
    lab = Lab(tmp_path / "hot", cold_dir=str(cold), hot_retain_segments=0)
    lab.write_each("a", 8)
    lab.checkpoint(everything=True)
    tiers = ColdTier(lab.engine)
    first, second = asyncio.run(tiers.due())
    (cold / file_name(first)).write_bytes(b"of another")
    assert not tiers.copy(first)
    assert asyncio.run(tiers.due()) == [second]
    assert tiers.copy(second)
    tiers.switch(second)
    assert mark_of((cold / file_name(second)).read_bytes()) == identity.mark
    assert (cold / file_name(first)).read_bytes() == b"of another"
    assert lab.seqs("a") == list(range(1, 9))
    lab.restart()
    assert lab.seqs("a") == list(range(1, 9))
    assert (cold / file_name(first)).read_bytes() == b"of another"


def test_a_copy_that_was_not_switched_to_is_not_read(tmp_path: Path) -> None:
    """Stopped in between, both files are there; what is deleted since is noted in the first one alone."""
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0)
    lab.write_each("a", 8, tag="x")
    lab.checkpoint(everything=True)
    tiers = ColdTier(lab.engine)
    first, second = asyncio.run(tiers.due())
    for number in (first, second):
        assert tiers.copy(number)
    tiers.switch(second)
    lab.checkpoint()
    for _ in range(2):
        assert (lab.engine.store.cold, lab.seqs("a")) == ({second}, list(range(1, 9)))
        assert Path(lab.engine.store.path(first)).parent == lab.directory / "segments"
        lab.restart()
    # What was left behind there is put in its place the next time.
    assert asyncio.run(ColdTier(lab.engine).due()) == [first]

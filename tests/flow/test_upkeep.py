"""Background upkeep on a real server process: files appear, go, and move, while reads stay the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.harness import Lab
from tests.support import ServerProcess, eventually
from topics.core import WritesOff
from topics.flow import upkeep
from topics.flow.checkpoints import Checkpoints
from topics.flow.cold_tier import ColdTier
from topics.flow.malloc_trimmer import MallocTrimmer
from topics.flow.upkeep import Upkeep
from topics.log.seal import checkpoint
from topics.log.write.commit_loop import CommitLoop


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


def test_deletes_in_sealed_segments_survive_a_kill(small: ServerProcess, tmp_path: Path) -> None:
    fill(small, "t", 3)
    eventually(lambda: bool(segments(tmp_path / "data" / "segments")), 20)
    assert small.post("/v0/topics/t/delete", {"match": "k3"})["deleted"] == 3
    kept = read_all(small, "t")
    assert all(data != 3 for _, data in kept)
    for _ in range(2):
        small.kill()
        small.start()
        assert read_all(small, "t") == kept
        fill(small, "other", 2)
        time.sleep(1.2)  # long enough for checkpoints, after which flags are flipped in place
    assert small.get("/v0/topics/t")["count"] == 27


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


@pytest.mark.parametrize(("number", "off"), [(28, WritesOff.DISK_FULL), (5, None)])
def test_upkeep_that_finds_no_room_ends_writes_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, off: WritesOff | None
) -> None:
    lab = Lab(tmp_path)
    turned: list[None] = []

    async def turn(_: Upkeep) -> None:
        turned.append(None)
        raise OSError(number, "no")

    monkeypatch.setattr(Upkeep, "_turn", turn)
    monkeypatch.setattr(upkeep, "until_next", lambda *_: 0.0)

    async def scenario() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        keeper = Upkeep(lab.engine, commit, lab.checkpointer)
        keeper.start()
        while not turned:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await keeper.stop()
        commit.close()

    asyncio.run(scenario())
    assert lab.engine.writes_off is off
    lab.kill()


def test_memory_is_given_back_when_it_is_time_and_writers_do_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[None] = []
    monkeypatch.setattr(upkeep, "trim_malloc", lambda: given.append(None))
    monkeypatch.setattr(MallocTrimmer, "is_due", lambda *_: True)
    lab = Lab(tmp_path)

    async def turns() -> list[int]:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        keeper = upkeep.Upkeep(lab.engine, commit, lab.checkpointer)
        counts = []
        for too_much in (0, 1 << 40, 0):
            lab.engine.store.unsealed.bytes += too_much
            await keeper._release_memory()
            lab.engine.store.unsealed.bytes -= too_much
            counts.append(len(given))
        commit.close()
        return counts

    assert asyncio.run(turns()) == [1, 1, 2]


def test_the_journal_is_written_ahead_where_there_are_many_small_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MANY_SYNCS", 5)
    monkeypatch.setattr("topics.log.engine.ROTATE_BYTES", 1 << 20)
    lab = Lab(tmp_path)

    async def turns() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        keeper = upkeep.Upkeep(lab.engine, commit, lab.checkpointer)
        syncs, journal = lab.engine.counters.syncs_us, lab.engine.journal
        await keeper._turn()
        assert not journal.is_ahead  # nobody waits for syncs
        monkeypatch.setattr(upkeep, "SMALL_SYNC_BYTES", 1)
        for _ in range(5):
            syncs.observe(1)
        lab.write("t", "x" * 100)
        await keeper._turn()
        assert not journal.is_ahead  # they are large
        monkeypatch.undo()
        monkeypatch.setattr(upkeep, "MANY_SYNCS", 5)
        monkeypatch.setattr("topics.log.engine.ROTATE_BYTES", 1 << 20)
        for _ in range(5):
            syncs.observe(1)
        await keeper._turn()
        assert journal.is_ahead
        assert lab.engine.ahead.size == 0
        for _ in range(5):
            syncs.observe(1)
        await keeper._turn()
        assert lab.engine.ahead.size == 1 << 20  # the next one
        commit.close()

    asyncio.run(turns())
    lab.write("t", 1)
    before = lab.seqs("t")
    lab.restart()
    assert lab.seqs("t") == before
    lab.restart(clean=True)
    assert lab.seqs("t") == before
    assert sum(path.stat().st_size for path in lab.journal_files()) < 10_000

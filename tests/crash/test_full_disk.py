"""A disk without room: what grows is refused without a trace, what shrinks goes on, and writes return."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.faults import Fault, FaultPlan
from tests.crash.forwarding import pull
from tests.crash.operations import CLASSES, furnished
from tests.crash.verify import Found, check_running, crash, judge
from tests.crash.world import World
from topics.core.errors import ApiError, WritesOff
from topics.log import delete_records
from topics.log.lifecycle import drop_topic, put_topic
from topics.log.write.operation import CallbackOp
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import is_full
from topics.storage.frame import HEADER_BYTES, FrameDraft, Kind, decode_header

# No reserve of these worlds can help with a group of this size.
TOO_MUCH = 40_000


@pytest.fixture
def world() -> World:
    world = furnished(random.Random(1))
    world.commit()
    return world


def restart(world: World, *, power: bool) -> None:
    synced = world.engine.journal.synced
    crash(world, power=power)
    world.open()
    judge(world, Found(world), synced if power else None)


def refusals_of(world: World, call: Callable[[Callable[[ApiError], None]], None]) -> list[str]:
    """The codes of what is refused, at once or later."""
    codes: list[str] = []
    try:
        call(lambda error: codes.append(error.code))
    except ApiError as error:
        codes.append(error.code)
    world.commit()
    return codes


def everything_is_as_the_model_says(world: World) -> None:
    for topic in list(world.engine.by_id.values()):
        if topic.committed:
            check_running(world, topic.name)


# --- what grows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_of_a_refused_group_is_there_after_a_restart(seed: int, power: bool) -> None:
    """Some of it had been written when the disk was full, and readers and writers of other topics went on."""
    rng = random.Random(seed)
    world = furnished(rng)
    world.queue.flush()
    world.disk.fill(leaving=2 * TOO_MUCH + rng.randrange(TOO_MUCH))
    heads = {name: world.topic(name).assigned for name in CLASSES}
    for name in CLASSES:
        world.append(name, [world.draft("x", padding=TOO_MUCH)])
    world.queue.flush()
    assert world.engine.writes_off is WritesOff.DISK_FULL
    for name in CLASSES:
        topic = world.topic(name)
        assert (topic.assigned, topic.pending_count) == (heads[name], heads[name] - topic.head)
    if seed % 2:
        # Otherwise nothing was synced since, but what the refusal itself has synced.
        world.commit()
        everything_is_as_the_model_says(world)
    restart(world, power=power)
    world.make_room()
    for name in CLASSES:
        assert world.append(name, [world.draft()])
    world.commit()
    everything_is_as_the_model_says(world)


def test_a_refusal_is_on_disk_before_it_is_told() -> None:
    """The power goes right behind it, with all kinds of luck; some of the refused frames had been whole."""
    for seed in range(60):
        world = World(random.Random(seed), disk_reserve_bytes=0)
        for name in ("one", "two"):
            world.put(name)
        world.commit()
        world.disk.fill(leaving=3000)
        for name in ("one", "two"):
            for _ in range(2):
                world.append(name, [world.draft(padding=1000)])
        world.queue.flush()
        assert world.engine.writes_off is WritesOff.DISK_FULL
        restart(world, power=True)
        assert world.engine.totals.records == 0


def test_what_grows_is_refused_and_can_be_sent_again(world: World) -> None:
    world.disk.fill()
    engine, config = world.engine, world.topic("disk").config
    world.delete("disk", before=2)
    world.commit()
    world.queue.refusals.note_full()
    assert refusals_of(world, lambda fail: put_topic(engine, "new", config, lambda _: None, fail)) == [
        "disk_full"
    ]
    assert engine.find("new") is None
    assert not world.append("disk", [world.draft()])
    world.make_room()
    assert engine.writes_off is None
    for name in CLASSES:
        assert world.append(name, [world.draft()])
    world.commit()
    everything_is_as_the_model_says(world)


def test_what_was_on_its_way_is_carried_by_half_of_the_reserve(world: World) -> None:
    """Whoever wrote in the moment in which the disk ran full is not refused; whoever comes then is."""
    world.disk.fill()
    assert world.append("fsync", [world.draft(padding=500)])
    assert world.delete("fsync", before=world.topic("fsync").head)
    world.commit()
    everything_is_as_the_model_says(world)
    assert not world.append("fsync", [world.draft()])
    assert world.engine.reserve.size >= world.engine.reserve.half


def test_the_other_half_is_left_to_removals(world: World) -> None:
    reserve = world.engine.reserve
    world.disk.fill()
    head = world.topic("fsync").head
    world.append("fsync", [world.draft(padding=reserve.half + 5000)])
    world.commit()
    assert world.topic("fsync").assigned == head
    assert reserve.size >= reserve.half
    everything_is_as_the_model_says(world)


def test_a_removal_behind_a_write_that_is_refused_is_refused_with_it(world: World) -> None:
    """It was ordered for seqs that others will get."""
    world.disk.fill()
    world.append("disk", [world.draft(padding=2 * TOO_MUCH)])
    bound = world.topic("disk").assigned + 1
    refused = refusals_of(
        world,
        lambda fail: delete_records(world.engine, world.topic("disk"), None, None, lambda _: None, fail),
    )
    assert refused == ["disk_full"]
    assert world.topic("disk").assigned + 1 < bound
    everything_is_as_the_model_says(world)
    assert world.delete("memory")
    world.commit()
    everything_is_as_the_model_says(world)


def test_a_group_written_aside_is_refused_like_any_other(world: World) -> None:
    world.disk.fill()
    world.append("disk", [world.draft(padding=2 * TOO_MUCH)])
    world.append("fsync", [world.draft(padding=2 * TOO_MUCH)])
    world.begin_write()
    # These came while it was being written, and one of them has the seq behind a refused one.
    world.append("disk", [world.draft()])
    assert world.delete("memory", before=5)
    world.commit()
    everything_is_as_the_model_says(world)
    restart(world, power=False)


# --- what shrinks -----------------------------------------------------------------------------------------


def test_removals_and_checkpoints_go_on(world: World) -> None:
    world.disk.fill()
    world.queue.refusals.note_full()
    assert world.delete("fsync", before=8)
    assert world.delete("disk", match=("Eq", "x"))
    world.commit()
    jobs = world.claim("safe-jobs", 3, "worker")
    assert len(jobs) == 3
    world.acknowledge("safe-jobs", jobs, "worker")
    world.drop("capped")
    world.put("aging", ttl_ms=100)
    world.commit()
    before = world.here.checkpointer.passes
    world.checkpoint()
    assert world.here.checkpointer.passes == before + 1
    assert world.engine.find("capped") is None
    assert not world.queue.refusals.is_stuck
    everything_is_as_the_model_says(world)
    restart(world, power=True)


@pytest.mark.parametrize("power", [False, True])
def test_without_a_reserve_removals_may_be_refused_and_then_nothing_of_them_is_done(power: bool) -> None:
    world = World(random.Random(2), disk_reserve_bytes=0)
    for durability in CLASSES:
        world.put(durability, durability=durability)
        world.commit()
        world.append(durability, [world.draft() for _ in range(8)])
    world.commit()
    world.disk.fill(leaving=10)
    topic = world.topic("disk")
    for _ in range(3):
        codes = refusals_of(
            world, lambda fail: delete_records(world.engine, topic, 5, None, lambda _: None, fail)
        )
        assert codes == ["disk_full"]
        codes = refusals_of(world, lambda fail: drop_topic(world.engine, "disk", False, _fail_if_done, fail))
        assert codes == ["disk_full"]
        world.look_for_room()
    assert topic.floor == 1
    everything_is_as_the_model_says(world)
    restart(world, power=power)
    everything_is_as_the_model_says(world)
    world.make_room()
    assert world.delete("disk", before=5)
    world.commit()
    everything_is_as_the_model_says(world)


def _fail_if_done(_: Any) -> None:
    raise AssertionError("it was refused")


def test_a_worker_whose_ack_found_no_room_still_holds_the_job() -> None:
    world = World(random.Random(2), disk_reserve_bytes=0)
    world.put("jobs", type="queue")
    world.commit()
    world.append("jobs", [world.draft()])
    world.commit()
    (job,) = world.claim("jobs", 1, "worker")
    world.disk.fill()
    world.acknowledge("jobs", [job], "worker")
    world.commit()
    assert world.topic("jobs").live_count == 1
    world.make_room()
    world.acknowledge("jobs", [job], "worker")
    world.commit()
    assert world.topic("jobs").live_count == 0


# --- routers ----------------------------------------------------------------------------------------------


def test_copies_are_made_from_the_reserve_and_later_without_one(world: World) -> None:
    for reserve_bytes in (64 * 1024, 0):
        world.engine.reserve.make(reserve_bytes)
        world.append("disk", [world.draft() for _ in range(3)])
        world.commit()
        world.disk.fill()
        world.queue.refusals.note_full()
        pull(world, "copies")
        everything_is_as_the_model_says(world)
        router = world.here.routers.table.named("plain")
        assert router is not None
        assert router.is_behind == (reserve_bytes == 0)
        world.make_room()
        pull(world, "copies")
        assert not router.is_behind
        everything_is_as_the_model_says(world)
    restart(world, power=False)


# --- files ------------------------------------------------------------------------------------------------


def test_a_journal_file_that_cannot_be_begun_is_not_there(world: World) -> None:
    """Otherwise what is written behind its beginning would belong to it."""
    world.engine.reserve.make(0)
    files = [file.base for file in world.engine.journal.files]
    world.append("fsync", [world.draft()])
    world.commit()
    # The heads that close a file find room, so does the name of the next one, and its header does not.
    world.disk.faults = FaultPlan(Fault.NO_SPACE, random.Random(0), after=3, within="/journal/")
    world.rotate()
    assert world.disk.faults.has_fired
    world.disk.faults = None
    assert [file.base for file in world.engine.journal.files] == files
    assert world.engine.writes_off is WritesOff.DISK_FULL
    world.make_room()
    world.append("fsync", [world.draft()])
    world.append("disk", [world.draft()])
    world.commit()
    restart(world, power=True)


# --- the start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve_bytes", [0, 64 * 1024])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_start_on_a_full_disk_serves_reads(seed: int, power: bool, reserve_bytes: int) -> None:
    rng = random.Random(seed)
    world = furnished(rng)
    world.engine.reserve.make(reserve_bytes)
    world.settings = {"disk_reserve_bytes": reserve_bytes}
    world.append("disk", [world.draft()])
    world.queue.flush()
    synced = world.engine.journal.synced
    crash(world, power=power)
    world.disk.fill(leaving=rng.choice((0, 0, 20, 100)))
    world.open()
    world.look_for_room()
    assert world.engine.writes_off is WritesOff.DISK_FULL
    judge(world, Found(world), synced if power else None)
    if reserve_bytes:
        assert world.delete("disk", before=5)
        world.commit()
    everything_is_as_the_model_says(world)
    # Once more, from whatever that start has left.
    restart(world, power=False)
    world.make_room()
    assert world.engine.writes_off is None
    for name in CLASSES:
        assert world.append(name, [world.draft()])
    world.commit()
    everything_is_as_the_model_says(world)
    restart(world, power=power)


def test_a_start_that_cannot_note_what_is_missing_waits_for_room() -> None:
    """A hole has to be on disk before anything is written behind it. Reads are told of it at once."""
    world = World(random.Random(3), disk_reserve_bytes=0)
    world.put("disk")
    world.commit()
    world.append("disk", [world.draft()])
    world.commit()
    world.queue.sync_journal()
    world.append("disk", [world.draft() for _ in range(5)])
    world.queue.flush()
    crash(world, power=True)
    # Also what a torn end gives back is taken.
    world.disk.fill(leaving=-1000)
    world.open()
    assert world.engine.writes_off is WritesOff.DISK_FULL
    found = Found(world)
    head = world.topic("disk").head
    assert world.queue.refusals.failure is not None
    assert not world.append("disk", [world.draft()])
    world.look_for_room()
    assert world.queue.refusals.failure is not None
    world.make_room()
    assert world.queue.refusals.failure is None
    judge(world, found, world.engine.journal.synced)
    assert world.append("disk", [world.draft()])
    world.commit()
    assert world.topic("disk").head == head + 1
    restart(world, power=True)


# --- an answer is the truth -------------------------------------------------------------------------------


def fail_syncs(world: World, times: int, seed: int) -> None:
    """Of a write between others that are acknowledged; the sync that follows its withdrawal may fail too."""
    world.append("disk", [world.draft("kept by luck")])
    world.append("fsync", [world.draft("refused")])
    world.append("memory", [world.draft("kept by luck")])
    world.queue.flush()
    world.append("disk", [world.draft("kept by luck")])
    world.queue.flush()
    for _ in range(times):
        world.disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(seed), within="/journal/")
        if world.queue.refusals.failure is None:
            world.queue.sync_now()
        assert world.disk.faults.has_fired
    world.disk.faults = None


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_write_whose_sync_failed_is_not_there_after_a_restart(seed: int, power: bool) -> None:
    world = furnished(random.Random(seed))
    world.commit()
    before = world.topic("fsync").head
    fail_syncs(world, 1, seed)
    assert world.engine.writes_off is WritesOff.STORAGE_FAILED
    everything_is_as_the_model_says(world)
    restart(world, power=power)
    if not power:
        assert world.topic("fsync").head == before
    # And not after another one, of which the second sync knew nothing.
    restart(world, power=True)


def test_heads_in_the_journal_do_not_speak_of_what_was_refused(world: World) -> None:
    world.append("fsync", [world.draft("refused")])
    world.rotate()
    world.append("disk", [world.draft()])
    world.queue.flush()
    head = world.topic("fsync").head
    world.disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(0), within="/journal/")
    world.queue.sync_now()
    world.disk.faults = None
    restart(world, power=False)
    assert world.topic("fsync").head == head


def test_of_frames_that_are_alike_those_that_took_effect_stay(world: World) -> None:
    """Two deletions in the same millisecond: the first is acknowledged, the second is refused."""
    topic = world.topic("ephemeral")
    done: list[int] = []
    failed: list[ApiError] = []
    ops = [
        CallbackOp(
            [FrameDraft(Kind.DELETE, b"alike", topic_id=topic.id)],
            None,
            lambda _: done.append(1),
            failed.append,
            sync=sync,
        )
        for sync in (False, True)
    ]
    for op in ops:
        world.queue.submit(op)
    world.queue.flush()
    world.disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(0), within="/journal/")
    world.queue.sync_now()
    world.disk.faults = None
    assert (len(done), len(failed)) == (1, 1)
    journal = world.engine.journal
    begin = FILE_HEADER_BYTES - journal.files[-1].base
    headers = [decode_header(journal.current_file().read(HEADER_BYTES, begin + op.span[0])) for op in ops]
    assert [header and header.kind for header in headers] == [Kind.DELETE, Kind.VOID]


class BrokenSyncs(FaultPlan):
    """From now on no sync succeeds."""

    def fails_sync(self, path: str) -> bool:
        return "/journal/" in path


def test_where_nobody_can_tell_no_answer_is_given(world: World) -> None:
    outcomes: list[type[ApiError]] = []
    world.disk.faults = BrokenSyncs(Fault.SYNC_FAILURE, random.Random(0))
    topic = world.topic("fsync")
    delete_records(world.engine, topic, 2, None, lambda _: None, lambda error: outcomes.append(type(error)))
    world.commit()
    assert [outcome.__name__ for outcome in outcomes] == ["OutcomeUnknown"]
    # Those that come now were never written, and hear so.
    with pytest.raises(ApiError, match="writes are off until restart"):
        delete_records(world.engine, topic, 2, None, lambda _: None, lambda _: None)
    everything_is_as_the_model_says(world)


def test_a_torn_write_that_cannot_be_cut_off_is_not_answered(world: World) -> None:
    outcomes: list[str] = []

    class NoWay(FaultPlan):
        def on_write(self, path: str, size: int) -> int | None:
            if "/journal/" not in path:
                return None
            if not size:
                raise OSError(5, "Input/output error", path)
            return size // 2

    world.disk.faults = NoWay(Fault.SHORT_WRITE, random.Random(0))
    topic = world.topic("fsync")
    delete_records(
        world.engine, topic, 2, None, lambda _: None, lambda error: outcomes.append(type(error).__name__)
    )
    world.commit()
    world.disk.faults = None
    assert outcomes == ["OutcomeUnknown"]
    assert world.engine.writes_off is WritesOff.STORAGE_FAILED


def test_what_is_meant_by_full() -> None:
    assert is_full(OSError(28, "ENOSPC"))
    assert is_full(OSError(122, "EDQUOT"))
    assert not is_full(OSError(27, "EFBIG"))
    assert not is_full(MemoryError())
    assert not is_full(None)

"""How room is watched: how fast it goes, when operators hear of it, and how writes return."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from tests.crash.disk import SimulatedDisk
from tests.crash.world import World
from topics.core import WritesOff
from topics.flow import disk_space
from topics.flow.disk_space import FULL_POLL_S, POLL_S, REMIND_S, SAMPLE_S, WINDOW_S, DiskSpace, FillRate
from topics.storage import BLOCK_BYTES

HOUR = 3600.0
GIB = 1 << 30


@pytest.fixture
def world() -> World:
    world = World(random.Random(0))
    world.put("t")
    world.commit()
    world.append("t", [world.draft()])
    world.commit()
    return world


def test_a_rate_needs_two_looks() -> None:
    rate = FillRate()
    assert rate.seconds_left() == math.inf
    rate.add(0, 100)
    assert rate.seconds_left() == math.inf
    rate.add(60, 90)
    assert rate.seconds_left() == 9 * 60


def test_room_that_does_not_shrink_lasts() -> None:
    rate = FillRate()
    rate.add(0, 100)
    rate.add(60, 100)
    assert rate.seconds_left() == math.inf
    rate.add(120, 200)
    assert rate.seconds_left() == math.inf


def test_the_rate_is_that_of_the_last_day() -> None:
    rate = FillRate()
    rate.add(0, 1000 * GIB)
    for hour in range(1, 72):
        # A terabyte on the first day, then a gigabyte an hour.
        rate.add(hour * HOUR, 200 * GIB - hour * GIB)
    assert rate.measured_s == WINDOW_S
    assert rate.seconds_left() == pytest.approx((200 - 71) * HOUR)
    # What was measured before is not kept.
    assert len(rate._samples) <= 26


class Shrinking(SimulatedDisk):
    free = 100 * GIB

    def free_bytes(self) -> int:
        return self.free


def test_the_operator_is_told_once_an_hour_when_a_day_is_left(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.disk.__class__ = Shrinking
    now = 0.0
    space = DiskSpace(world.engine, lambda: now)

    async def watch(minutes: int, lost: int) -> None:
        nonlocal now
        for _ in range(minutes):
            await space.turn()
            now += SAMPLE_S
            world.disk.free -= lost  # type: ignore[attr-defined]

    asyncio.run(watch(60, 1 << 20))
    assert not caplog.records
    asyncio.run(watch(int(2 * REMIND_S / SAMPLE_S), GIB // 4))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all("the disk will be full in about" in line for line in said)
    assert space.seconds_until_full() < 24 * HOUR


def told(world: World, caplog: pytest.LogCaptureFixture, *looks: tuple[float, int]) -> list[str]:
    """What the operator hears when so much is free at these times."""
    world.disk.__class__ = Shrinking
    times = iter([at for at, _ in looks])
    space = DiskSpace(world.engine, lambda: next(times))
    for _, free in looks:
        world.disk.free = free  # type: ignore[attr-defined]
        asyncio.run(space.turn())
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("after_s", "span"), [(SAMPLE_S, "1 min"), (10 * SAMPLE_S, "10 min"), (HOUR, "1.0 hours")]
)
def test_how_long_the_rate_was_measured_is_told(
    world: World, caplog: pytest.LogCaptureFixture, after_s: float, span: str
) -> None:
    (said,) = told(world, caplog, (0.0, 100 * GIB), (after_s, 10 * GIB))
    assert said.endswith(f"at the rate of the last {span}")


def test_a_day_that_is_left_is_not_told_and_less_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    minutes = 24 * 60
    assert told(world, caplog, (0.0, (minutes + 1) * GIB), (SAMPLE_S, minutes * GIB)) == []
    assert len(told(world, caplog, (0.0, (minutes + 1) * GIB), (SAMPLE_S, minutes * GIB - 1))) == 1


def test_it_is_told_again_when_an_hour_is_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    looks = [(0.0, 100 * GIB), (SAMPLE_S, 90 * GIB), (REMIND_S, 50 * GIB)]
    assert len(told(world, caplog, *looks)) == 1
    caplog.clear()
    assert len(told(world, caplog, *looks, (SAMPLE_S + REMIND_S, 40 * GIB))) == 2


def test_room_is_measured_once_a_minute(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert told(world, caplog, (0.0, 100 * GIB), (SAMPLE_S - 1, 1 * GIB)) == []


@pytest.mark.parametrize("is_full", [False, True])
def test_it_looks_more_often_while_the_disk_is_full_and_no_more_when_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    intervals = set()

    def at_once(every_s: float, now_s: float) -> float:
        intervals.add(every_s)
        return 0.0

    monkeypatch.setattr(disk_space, "until_next", at_once)
    space = DiskSpace(world.engine, lambda: 0.0)
    if is_full:
        world.disk.fill()
        world.queue.note_full()

    async def watch() -> None:
        await space.stop()
        space.start()
        for _ in range(3):
            await asyncio.sleep(0)
        await space.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watch())
    assert intervals == {FULL_POLL_S if is_full else POLL_S}


def test_writes_return_when_there_is_room(world: World) -> None:
    space = DiskSpace(world.engine, lambda: 0.0)
    world.disk.fill()
    world.queue.note_full()
    asyncio.run(space.turn())
    assert world.engine.writes_off is WritesOff.DISK_FULL
    assert space.seconds_until_full() == 0.0
    world.disk.capacity = None
    asyncio.run(space.turn())
    assert world.engine.writes_off is None
    assert world.append("t", [world.draft()])
    world.commit()
    assert world.topic("t").head == 2


def test_whoever_needs_the_reserve_first_the_disk_is_full(world: World) -> None:
    """A checkpoint finds out before the next append does."""
    space = DiskSpace(world.engine, lambda: 0.0)
    world.disk.fill()
    world.checkpoint()
    assert world.engine.reserve.is_needed
    asyncio.run(space.turn())
    assert world.engine.writes_off is WritesOff.DISK_FULL


def test_a_storage_that_failed_is_left_alone(world: World) -> None:
    space = DiskSpace(world.engine, lambda: 0.0)
    world.queue.give_up(OSError("broken"))
    world.engine.reserve.is_needed = True
    before = world.disk.mutations
    asyncio.run(space.turn())
    assert world.engine.writes_off is WritesOff.STORAGE_FAILED
    assert world.disk.mutations == before


def test_the_reserve_grows_with_what_it_has_to_help_with(world: World) -> None:
    space = DiskSpace(world.engine, lambda: 0.0)
    world.engine.settings.disk_reserve_bytes = None
    space.make_reserve()
    before = space.reserve_bytes
    assert before >= 8 << 20
    for _ in range(20):
        world.append("t", [world.draft(padding=10_000)])
    world.commit()
    space.make_reserve()
    assert space.reserve_bytes - before >= 190_000
    world.engine.settings.disk_reserve_bytes = 0
    space.make_reserve()
    assert space.reserve_bytes == 0


def test_a_reserve_that_was_asked_for_and_is_smaller_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    space = DiskSpace(world.engine, lambda: 0.0)
    world.engine.settings.disk_reserve_bytes = 10 << 20
    world.disk.capacity = world.disk.used_bytes() + (16 << 20)
    for _ in range(3):
        space.make_reserve()
    assert space.reserve_bytes <= (17 << 20) // 16
    assert len(caplog.records) == 1
    assert "a sixteenth of what is free at most" in caplog.text


@pytest.mark.parametrize(("missing", "is_told"), [(BLOCK_BYTES, True), (BLOCK_BYTES - 1, False)])
def test_a_reserve_is_not_called_smaller_for_less_than_a_block(
    world: World, caplog: pytest.LogCaptureFixture, missing: int, is_told: bool
) -> None:
    world.disk.__class__ = Shrinking
    reserve = 100 * BLOCK_BYTES
    # What it has got already counts as free.
    world.disk.free = 16 * reserve - world.engine.reserve.size  # type: ignore[attr-defined]
    world.engine.settings.disk_reserve_bytes = reserve + missing
    space = DiskSpace(world.engine, lambda: 0.0)
    space.make_reserve()
    assert space.reserve_bytes == reserve
    assert bool(caplog.records) is is_told

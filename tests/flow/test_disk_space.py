"""How room is watched: how fast it goes, when operators hear of it, and how writes return."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from tests.crash.disk import SimulatedDisk
from tests.crash.world import World
from topics.core import WritesOff
from topics.flow.disk_space import REMIND_S, SAMPLE_S, WINDOW_S, DiskSpace, FillRate

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


def test_writes_return_when_there_is_room(world: World) -> None:
    space = DiskSpace(world.engine, lambda: 0.0)
    world.disk.fill()
    world.queue.refusals.note_full()
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

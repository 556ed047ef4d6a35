"""A failed sync is final: nobody retries and pretends. Reads go on, writes stop, a restart makes it good."""

from __future__ import annotations

import random

import pytest

from tests.crash.faults import Fault, FaultPlan
from tests.crash.operations import CLASSES, furnished
from tests.crash.verify import Found, check_running, crash, judge
from tests.crash.world import World
from topics.core.errors import ApiError
from topics.log.lifecycle import put_topic


@pytest.fixture
def world() -> World:
    world = furnished(random.Random(1))
    world.commit()
    return world


def fail_a_sync(world: World, seed: int = 0) -> None:
    """An acknowledged write that no sync has covered, then one whose sync fails."""
    world.append("disk", [world.draft("kept by luck")])
    world.commit()
    world.disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(seed), within="/journal/")
    world.append("fsync", [world.draft("refused")])
    world.commit()
    assert world.disk.faults.has_fired
    world.disk.faults = None


def restart(world: World, *, power: bool) -> None:
    synced = world.engine.journal.synced
    crash(world, power=power)
    world.open()
    judge(world, Found(world), synced if power else None)


def test_writes_are_off_and_say_so(world: World) -> None:
    fail_a_sync(world)
    assert world.engine.read_only
    failures: list[ApiError] = []
    for name in CLASSES:
        assert not world.append(name, [world.draft()])
    with pytest.raises(ApiError, match="writes are off until restart") as failure:
        put_topic(world.engine, "new", world.topic("disk").config, lambda _: None, failures.append)
    assert failure.value.code == "internal"


def test_no_sync_is_tried_again(world: World) -> None:
    fail_a_sync(world)
    before = world.disk.mutations
    world.commit()
    world.rotate()
    world.checkpoint()
    assert world.disk.mutations == before, "the disk was touched after it had failed"


def test_reads_go_on_and_show_nothing_of_the_refused(world: World) -> None:
    fail_a_sync(world)
    for name in ("fsync", "disk", "memory", "copies"):
        check_running(world, name)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_restart_takes_writes_again(world: World, power: bool, seed: int) -> None:
    fail_a_sync(world, seed)
    restart(world, power=power)
    for name in CLASSES:
        assert world.append(name, [world.draft()])
    world.commit()
    assert not world.engine.read_only
    for name in CLASSES:
        check_running(world, name)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_restart_found_in_memory_only_is_made_safe(world: World, seed: int) -> None:
    """The kernel takes pages whose sync failed for written. The next process must not believe it."""
    fail_a_sync(world, seed)
    restart(world, power=False)
    # All that was found is promised now, as if it had been synced: the model knows no events any more.
    restart(world, power=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_recovery_whose_sync_fails_promises_nothing(world: World, seed: int) -> None:
    world.append("disk", [world.draft()])
    world.commit()
    synced = world.engine.journal.synced
    crash(world, power=True)
    for after in range(1, 12):
        world.disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(seed), after=after)
        try:
            world.open()
        except OSError:
            pass
        world.disk.kill()
    world.open()
    judge(world, Found(world), synced)

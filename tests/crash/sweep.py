"""Stop an operation behind every change it makes to the disk, recover, and hold that against the model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.disk import Crash, SimulatedDisk
from tests.crash.installation import Installation
from tests.crash.operations import OPERATIONS, furnished
from tests.crash.verify import Found, check_running, crash, judge
from tests.crash.world import World
from topics.core.clock import ManualClock


@dataclass(frozen=True)
class Point:
    """One case: the operation, the change behind which it stops, and how.

    `luck` None: only killed. 0: the power goes, and with it everything that no sync has covered. Otherwise
    chance decides what is left.
    """

    operation: str
    index: int
    luck: int | None

    @property
    def power(self) -> bool:
        return self.luck is not None

    @property
    def seed(self) -> str:
        return f"{self.operation}/{self.index}/{self.luck}"


class NoLuck(random.Random):
    def random(self) -> float:
        return 0.0


def changes(operation: str) -> int:
    """How many changes it makes to the disk."""
    world = furnished(random.Random(0))
    before = world.disk.mutations
    OPERATIONS[operation](world)
    return world.disk.mutations - before


def points(operation: str, lucks: int) -> Iterator[Point]:
    for index in range(1, changes(operation) + 1):
        for luck in (None, *range(lucks)):
            yield Point(operation, index, luck)


def stopped(point: Point) -> tuple[World, int]:
    """The world after the crash, not opened again, and how far its journal was known to be safe."""
    world = furnished(random.Random(point.seed))
    world.disk.crash_at = world.disk.mutations + point.index
    try:
        OPERATIONS[point.operation](world)
    except Crash:
        synced = world.engine.journal.synced
        if point.luck == 0:
            world.rng = NoLuck()
        crash(world, power=point.power)
        world.rng = random.Random(point.seed)
        # A clock may come back wrong as well; nothing that was shown may depend on it.
        world.clock.advance(-1500)
        return world, synced
    raise AssertionError("it did not stop")


def check(point: Point) -> None:
    """Recover and judge; recover the same once more, and go on from there."""
    world, synced = stopped(point)
    twin = world.disk.clone()
    world.open()
    _opened(twin, world.clock)
    assert world.disk.contents() == twin.contents(), "recovering twice does not give the same bytes"
    found = Found(world)
    judge(world, found, synced if point.power else None)
    if point.index % 2:
        _check_again(world, found)
    else:
        _check_use(world)


def _opened(disk: SimulatedDisk, clock: ManualClock) -> Installation:
    return Installation(disk, clock)


def _check_again(world: World, found: Found) -> None:
    """A restart right behind a recovery changes nothing."""
    world.disk.kill()
    world.open()
    again = Found(world)
    assert again.rows == found.rows
    assert again.gaps == found.gaps
    before = _apart_from_witness(world.disk)
    world.disk.kill()
    world.open()
    assert _apart_from_witness(world.disk) == before, "a third recovery still changes files"


def _apart_from_witness(disk: SimulatedDisk) -> dict[str, bytes]:
    """Files without the page in which each process signs for itself."""
    return {path: content for path, content in disk.contents().items() if not path.endswith("/witness")}


def _check_use(world: World) -> None:
    """Every topic takes a record and shows it, and no seq comes twice."""
    world.make_room()
    names = [topic.name for topic in world.engine.by_id.values()]
    for name in names:
        world.append(name, [world.draft("x")])
    world.commit()
    assert world.queue.refusals.failure is None
    for name in names:
        check_running(world, name)


def check_recovery(point: Point, lucks: int) -> int:
    """Stop the recovery itself behind every change; the next one must come to the same."""
    world, synced = stopped(point)
    image = world.disk.clone()
    world.open()
    found = Found(world)
    judge(world, found, synced if point.power else None)
    last = _recovery_changes(image, world.clock)
    for index in range(1, last + 1):
        for luck in (None, *range(lucks)):
            if luck is not None and not point.power:
                # What a killed process left unsynced may go now: that is for the model to judge.
                _check_with_model(point, index, luck)
            else:
                disk = image.clone()
                _stop_recovery(disk, world.clock, index, f"{point.seed}/{index}/{luck}", luck)
                _check_same(disk, world.clock, found, exact=luck is None)
    return last


def _recovery_changes(image: SimulatedDisk, clock: ManualClock) -> int:
    disk = image.clone()
    _opened(disk, clock)
    return disk.mutations


def _stop_recovery(disk: SimulatedDisk, clock: ManualClock, index: int, seed: str, luck: int | None) -> None:
    disk.crash_at = disk.mutations + index
    try:
        _opened(disk, clock)
    except Crash:
        pass
    else:
        raise AssertionError("recovery did not stop")
    if luck is None:
        disk.kill()
    else:
        disk.crash(random.Random(seed))


def _check_same(disk: SimulatedDisk, clock: ManualClock, found: Found, *, exact: bool) -> None:
    again = Found(_opened(disk, clock))
    assert again.rows == found.rows, "a crash during recovery changed what is there"
    for topic_id, gaps in found.gaps.items():
        assert again.topics[topic_id].head >= found.topics[topic_id].head
        announced = {seq for first, last in again.gaps[topic_id] for seq in range(first, last + 1)}
        assert all(first in announced and last in announced for first, last in gaps)
        assert not exact or again.gaps[topic_id] == gaps


def _check_with_model(point: Point, index: int, luck: int) -> None:
    world, synced = stopped(point)
    _stop_recovery(world.disk, world.clock, index, f"{point.seed}/{index}/{luck}", luck)
    world.open()
    judge(world, Found(world), synced)

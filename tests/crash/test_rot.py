"""Bits turn over at rest, in every kind of file: what is lost is announced, and nothing else happens."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from tests.crash.operations import OPERATIONS, furnished
from tests.crash.verify import Found, crash, judge, judge_damaged
from tests.crash.world import World


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def at_rest(operation: str, rng: random.Random) -> World:
    """After the operation, and after a checkpoint that closed with it; nobody has a file open."""
    world = furnished(rng)
    OPERATIONS[operation](world)
    world.commit()
    for _ in range(rng.randrange(4)):
        # A file of the journal for each: old ones go as soon as no snapshot needs them.
        world.rotate()
        world.append("disk", [world.draft()])
        world.checkpoint(everything=True)
    # Later frames prove that everything before them had been synced.
    for _ in range(2):
        world.append("fsync", [world.draft()])
        world.commit()
    crash(world, power=False)
    return world


def files(world: World, folder: str) -> list[str]:
    return [path for path in world.disk.contents() if f"/{folder}/" in path]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_rotten_snapshot_costs_nothing(operation: str) -> None:
    """There are two of them, and whatever the older one needs is still there."""
    rng = random.Random(operation)
    for newest in (True, False):
        world = at_rest(operation, rng)
        snapshots = files(world, "snapshots")
        world.disk.rot(snapshots[-1 if newest else 0], rng)
        world.open()
        judge(world, Found(world), None)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rotten_segment_costs_its_records_and_no_more(operation: str) -> None:
    rng = random.Random(operation)
    for _ in range(2):
        world = at_rest(operation, rng)
        paths = [*files(world, "segments"), *files(world, "cold")]
        world.disk.rot(rng.choice([path for path in paths if path.endswith(".segment")]), rng)
        world.open()
        judge_damaged(world, Found(world), may_bring_back=False)


@pytest.mark.parametrize("name", ["/data/.topics.identity", "/cold/.topics.owner"])
def test_a_rotten_identity_costs_nothing(name: str) -> None:
    """The data directory and the cold one know of each other, whichever of them forgets."""
    rng = random.Random(name)
    for _ in range(8):
        world = at_rest("seal", rng)
        identity = world.here.home.identity
        world.disk.rot(name, rng)
        world.open()
        assert world.here.home.identity == identity
        judge(world, Found(world), None)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rotten_frame_costs_what_it_said(operation: str) -> None:
    rng = random.Random(operation)
    for _ in range(3):
        world = at_rest(operation, rng)
        path = rng.choice([path for path in files(world, "journal") if path.endswith(".journal")])
        world.disk.rot(path, rng)
        world.open()
        judge_damaged(world, Found(world), may_bring_back=True)

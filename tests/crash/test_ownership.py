"""A start that makes the identity, or takes a directory over, stopped behind every change that it makes."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from tests.crash.disk import Crash, SimulatedDisk
from tests.crash.installation import SETTINGS, Installation
from tests.crash.operations import furnished
from tests.crash.sweep import NoLuck
from tests.crash.verify import Found, judge
from topics.core.clock import ManualClock
from topics.storage.cold_choice import ForeignDirectory
from topics.storage.directories import Directories
from topics.storage.home import Home
from topics.storage.identity import Identity, read_identity, read_owner

IDENTITY, OWNER, NOTE = "/data/.topics.identity", "/cold/.topics.owner", "/data/.topics.cold"
LUCKS = 3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def open_home(disk: SimulatedDisk, data: str = "/data") -> Home:
    return Home(disk, Directories(data, "/cold"), dict)


def stop(disk: SimulatedDisk, index: int, luck: int | None) -> bool:
    """Open the directories and stop behind a change; False when there are not so many."""
    disk.crash_at = disk.mutations + index
    try:
        open_home(disk)
    except Crash:
        pass
    else:
        return False
    if luck is None:
        disk.kill()
    else:
        disk.crash(random.Random(f"{index}/{luck}"))
    return True


def known(disk: SimulatedDisk) -> Identity:
    """What both directories say, in agreement."""
    identity, owner = read_identity(disk, "/data"), read_owner(disk, "/cold")
    assert identity is not None
    assert owner is not None
    assert owner.identity == identity.identity
    assert owner.data_dir == "/data"
    return identity


def test_the_first_start() -> None:
    """Whatever is left, the next start goes on; what it has made is safe, and another log is kept out."""
    for luck in (None, *range(LUCKS)):
        index = 1
        disk = SimulatedDisk()
        while stop(disk, index, luck):
            owner = read_owner(disk, "/cold")
            identity = read_identity(disk, "/data")
            assert owner is None or (identity is not None and owner.identity == identity.identity)
            made = open_home(disk).identity
            # The power goes, and with it everything that no sync has covered.
            disk.crash(NoLuck())
            assert known(disk) == made
            with pytest.raises(ForeignDirectory):
                open_home(disk, "/other")
            assert not disk.exists("/other")
            index += 1
            disk = SimulatedDisk()
        assert index > 5


def test_the_first_start_stops_twice() -> None:
    """By a kill, of which the next start sees everything, and then by a power loss, which takes that back."""
    first, tried = 1, 0
    disk = SimulatedDisk()
    while stop(disk, first, None):
        second = 1
        while _stop_again(first, second):
            second += 1
            tried += 1
        first += 1
        disk = SimulatedDisk()
    assert tried > 20


def _stop_again(first: int, second: int) -> bool:
    disk = SimulatedDisk()
    stop(disk, first, None)
    disk.crash_at = disk.mutations + second
    try:
        open_home(disk)
    except Crash:
        disk.crash(NoLuck())
        made = open_home(disk).identity
        assert known(disk) == made
        return True
    return False


def without_hidden_files() -> SimulatedDisk:
    """Furnished, and then copied without its hidden files."""
    world = furnished(random.Random(0))
    world.commit()
    world.disk.kill()
    for path in (IDENTITY, OWNER):
        world.disk.remove(path)
    world.disk.write_back()
    return world.disk


def lasting(installation: Installation) -> dict[str, dict[int, bytes]]:
    """Rows of every topic; without those that age takes, since time goes on between two starts."""
    found = Found(installation)
    return {topic.name: found.rows[key] for key, topic in found.topics.items() if not topic.config.ttl_ms}


def test_taking_over_a_directory_without_hidden_files() -> None:
    before = lasting(Installation(without_hidden_files(), ManualClock()))
    changes = 0
    for luck in (None, *range(LUCKS)):
        index = 1
        disk = without_hidden_files()
        while _stop_opening(disk, index, luck):
            again = Installation(disk, ManualClock())
            assert lasting(again) == before
            assert known(disk) == again.home.identity
            index += 1
            disk = without_hidden_files()
        changes = max(changes, index)
    assert changes > 10


def _stop_opening(disk: SimulatedDisk, index: int, luck: int | None) -> bool:
    disk.crash_at = disk.mutations + index
    try:
        Installation(disk, ManualClock())
    except Crash:
        pass
    else:
        return False
    if luck is None:
        disk.kill()
    else:
        disk.crash(random.Random(f"{index}/{luck}"))
    return True


def test_a_second_log_in_the_directory_of_the_first_touches_nothing() -> None:
    """Its segments have the same numbers as those of the first one."""
    world = furnished(random.Random(1))
    world.commit()
    before = world.disk.contents()
    with pytest.raises(ForeignDirectory):
        Installation(world.disk, ManualClock(), data_dir="/second")
    assert world.disk.contents() == before
    world.disk.kill()
    world.open()
    judge(world, Found(world), None)
    assert SETTINGS["cold_dir"] == "/cold"

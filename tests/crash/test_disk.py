"""The simulated disk itself: what is synced stays, what is not may go in every way a disk has."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.crash.disk import Crash, SimulatedDisk
from tests.crash.faults import Fault, FaultPlan
from topics.storage.filesystem import LockHeld, write_file_atomically


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    return disk


def content(disk: SimulatedDisk, path: str) -> bytes | None:
    return disk.contents().get(path)


def fates(act: Callable[[SimulatedDisk], None], path: str, tries: int = 200) -> set[bytes | None]:
    """What a power loss has been seen to leave of a file."""
    found = set()
    for seed in range(tries):
        disk = SimulatedDisk()
        disk.make_dirs("/data")
        act(disk)
        disk.crash(random.Random(seed))
        found.add(content(disk, path))
    return found


def synced_file(disk: SimulatedDisk, data: bytes = b"old") -> None:
    file = disk.create("/data/f")
    file.write([data], 0)
    file.sync()
    disk.sync_dir("/data")


def test_what_is_synced_survives() -> None:
    assert fates(synced_file, "/data/f") == {b"old"}


def test_a_killed_process_loses_nothing(disk: SimulatedDisk) -> None:
    disk.create("/data/f").write([b"abc", b"def"], 0)
    boot = disk.boot_id()
    disk.kill()
    assert content(disk, "/data/f") == b"abcdef"
    assert disk.boot_id() == boot
    disk.crash(random.Random(0))
    assert disk.boot_id() != boot


def test_unsynced_writes_vanish_tear_and_change_places() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk, b"")
        file = disk.open("/data/f")
        file.write([b"AAAA"], 0)
        file.write([b"BBBB"], 4)

    found = fates(act, "/data/f")
    assert {b"", b"AAAABBBB", b"AAAA", b"\0\0\0\0BBBB"} <= found
    assert any(each is not None and 0 < len(each) < 4 for each in found), "nothing was torn"
    whole = b"AAAABBBB"
    assert all(
        each is not None and all(x in (0, y) for x, y in zip(each, whole, strict=False)) for each in found
    )


def test_an_unsynced_name_can_vanish_although_its_file_is_synced() -> None:
    def act(disk: SimulatedDisk) -> None:
        file = disk.create("/data/f")
        file.write([b"x"], 0)
        file.sync()

    assert fates(act, "/data/f") == {None, b"x"}


def test_unsynced_renames_and_removals_can_be_undone() -> None:
    def rename(disk: SimulatedDisk) -> None:
        synced_file(disk)
        disk.rename("/data/f", "/data/g")

    assert fates(rename, "/data/f") == {None, b"old"}
    assert fates(rename, "/data/g") == {None, b"old"}

    def remove(disk: SimulatedDisk) -> None:
        synced_file(disk)
        disk.remove("/data/f")

    assert fates(remove, "/data/f") == {None, b"old"}


def test_a_file_replaced_with_care_is_old_or_new() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk)
        write_file_atomically(disk, "/data", "f", [b"new"])

    assert fates(act, "/data/f") == {b"new"}


def test_truncation_can_be_undone() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk, b"0123456789")
        disk.open("/data/f").truncate(4)

    assert fates(act, "/data/f") == {b"0123456789", b"0123"}


def test_a_shared_page_is_as_old_as_its_last_sync_or_newer() -> None:
    def act(disk: SimulatedDisk) -> None:
        page = disk.shared_page("/data/p", 8)
        page.view[:] = b"synced__"
        page.sync()
        disk.sync_dir("/data")
        page.view[:] = b"between_"
        disk.create("/data/f")
        page.view[:] = b"unsynced"

    assert fates(act, "/data/p") == {b"synced__", b"between_", b"unsynced"}


def test_it_stops_behind_the_change_that_was_asked_for(disk: SimulatedDisk) -> None:
    disk.crash_at = disk.mutations + 2
    file = disk.create("/data/f")
    with pytest.raises(Crash):
        file.write([b"x"], 0)
    for act in (
        lambda: file.write([b"y"], 0),
        lambda: disk.remove("/data/f"),
        lambda: disk.create("/data/g"),
    ):
        with pytest.raises(Crash):
            act()
    disk.kill()
    assert content(disk, "/data/f") == b"x"


def test_a_mapping_shows_later_writes_and_outlives_growth(disk: SimulatedDisk) -> None:
    synced_file(disk, b"x" * 100)
    file = disk.open("/data/f")
    view = file.map()
    file.write([b"y"], 0)
    assert view[0] == ord("y")
    file.write([b"z" * 5000], 100)
    assert len(view) == 100
    assert len(file.map()) == 5100


@pytest.mark.parametrize(
    ("fault", "number"),
    [(Fault.WRITE_ERROR, errno.EIO), (Fault.NO_SPACE, errno.ENOSPC), (Fault.SHORT_WRITE, errno.ENOSPC)],
)
def test_a_write_fails_once(disk: SimulatedDisk, fault: Fault, number: int) -> None:
    file = disk.create("/data/f")
    disk.faults = FaultPlan(fault, random.Random(3))
    with pytest.raises(OSError) as failure:
        file.write([b"x" * 100], 0)
    assert failure.value.errno == number
    assert (0 < file.size() < 100) == (fault is Fault.SHORT_WRITE)
    assert file.write([b"x"], 0) == 1


def test_a_read_fails_once(disk: SimulatedDisk) -> None:
    synced_file(disk)
    disk.faults = FaultPlan(Fault.READ_ERROR, random.Random(0), after=2)
    file = disk.open("/data/f")
    with pytest.raises(OSError, match="Input/output error"):
        file.map()
    assert bytes(file.map()) == b"old"


def test_a_failed_sync_takes_pages_along_and_the_next_one_does_not_help() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk)
        file = disk.open("/data/f")
        file.write([b"new"], 0)
        disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(disk.mutations + len(found)))
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        found.append(file.read(3, 0))
        file.sync()

    found: list[bytes] = []
    assert fates(act, "/data/f") == {b"old", b"new"}
    assert set(found) == {b"new"}, "the page cache still shows it"


def test_written_once_more_after_a_failed_sync_it_is_safe() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk)
        file = disk.open("/data/f")
        file.write([b"new"], 0)
        disk.faults = FaultPlan(Fault.SYNC_FAILURE, random.Random(1))
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.write([b"new"], 0)
        file.sync()

    assert fates(act, "/data/f") == {b"new"}


def test_a_misdirected_write_hits_two_places() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    synced_file(disk, b"." * 100)
    file = disk.open("/data/f")
    disk.faults = FaultPlan(Fault.MISDIRECTION, random.Random(5))
    file.write([b"new"], 10)
    file.sync()
    assert file.read(3, 10) == b"new"
    disk.crash(random.Random(0))
    left = content(disk, "/data/f")
    assert left is not None
    assert left[10:13] != b"new"
    assert b"n" in left


def test_what_is_written_over_a_stray_write_is_there() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    synced_file(disk, b"." * 20)
    file = disk.open("/data/f")
    file._node.patches.append((5, b"stray"))  # type: ignore[attr-defined]
    file.write([b"new"], 6)
    file.sync()
    disk.crash(random.Random(0))
    assert content(disk, "/data/f") == b".....snewy.........."


def test_bits_rot(disk: SimulatedDisk) -> None:
    synced_file(disk, b"\0" * 10)
    disk.rot("/data/f", random.Random(0))
    left = content(disk, "/data/f")
    assert left is not None
    assert sum(byte.bit_count() for byte in left) == 1


def test_a_lock_goes_with_the_process(disk: SimulatedDisk) -> None:
    disk.lock("/data/lock")
    with pytest.raises(LockHeld):
        disk.lock("/data/lock")
    disk.kill()
    disk.lock("/data/lock")

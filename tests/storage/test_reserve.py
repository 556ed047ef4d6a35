"""Room kept for removals: how much of it, who gets it, and when there is enough again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.disk import SimulatedDisk
from tests.crash.faults import Fault, FaultPlan
from tests.support.disk import NotedDisk
from topics.storage import Room
from topics.storage.ahead import Ahead
from topics.storage.filesystem import Filesystem
from topics.storage.reserve import BLOCK_BYTES, FILE_NAME, SHARE, Reserve, enough_bytes

KIB = 1024
MIB = 1024 * KIB


class CountedDisk(Filesystem):
    """A real one that says it is smaller than it is."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes

    def room(self, path: str) -> Room:
        return Room(self.free_bytes, self.free_bytes, 16 * self.free_bytes)


def full_disk(leaving: int = 0, made: int = 64 * KIB) -> tuple[SimulatedDisk, Reserve]:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    reserve = Reserve(disk, "/data")
    reserve.make(made)
    disk.fill(leaving=leaving)
    return disk, reserve


def test_what_it_takes_is_really_taken(tmp_path: Path) -> None:
    reserve = Reserve(Filesystem(), str(tmp_path))
    assert reserve.size == 0
    assert not (tmp_path / FILE_NAME).exists()
    reserve.make(MIB)
    status = (tmp_path / FILE_NAME).stat()
    assert reserve.size == status.st_size == MIB
    assert status.st_blocks * 512 >= MIB
    reserve.close()


@pytest.mark.parametrize(("wanted", "free", "made"), [(MIB, 64 * MIB, MIB), (8 * MIB, 16 * MIB, MIB)])
def test_it_takes_a_sixteenth_of_what_is_free_at_most(
    tmp_path: Path, wanted: int, free: int, made: int
) -> None:
    reserve = Reserve(CountedDisk(free), str(tmp_path))
    reserve.make(wanted)
    assert reserve.size == made <= free // SHARE
    reserve.close()


def test_on_a_full_disk_there_is_none(tmp_path: Path) -> None:
    reserve = Reserve(CountedDisk(SHARE * BLOCK_BYTES - 1), str(tmp_path))
    reserve.make(8 * MIB)
    assert reserve.size == 0
    assert not reserve.give(1)
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    disk.fill()
    reserve = Reserve(disk, "/data")
    reserve.make(8 * MIB)
    assert reserve.size == 0
    reserve.let_start()
    assert reserve.is_needed


def test_a_start_does_not_wait_for_its_syncs(tmp_path: Path) -> None:
    disk = NotedDisk()
    reserve = Reserve(disk, str(tmp_path))
    reserve.make(MIB, is_hasty=True)
    assert reserve.size == MIB
    assert ("sync", FILE_NAME) not in disk.notes
    reserve.make(MIB)
    assert disk.notes[-2:] == [("sync", FILE_NAME), ("sync_dir", tmp_path.name)]
    notes = len(disk.notes)
    reserve.make(MIB)
    assert len(disk.notes) == notes
    reserve.close()


def test_another_process_finds_it(tmp_path: Path) -> None:
    reserve = Reserve(Filesystem(), str(tmp_path))
    reserve.make(MIB)
    reserve.close()
    again = Reserve(CountedDisk(0), str(tmp_path))
    assert again.size == MIB
    # It does not shrink because there is no room: that is what it is for. Only a smaller wish makes it.
    again.make(MIB)
    assert again.size == MIB
    again.make(MIB // 2)
    assert again.size == MIB // 2
    again.make(0)
    assert again.size == 0
    again.close()


def test_it_is_given_in_pieces_so_that_not_every_frame_asks() -> None:
    _, reserve = full_disk(made=MIB)
    assert reserve.give(1)
    assert reserve.size == MIB - MIB // 16


def test_helping() -> None:
    disk, reserve = full_disk()
    file = disk.create("/data/file")
    reserve.helping(5000, lambda: file.write([bytes(5000)], 0))
    assert file.size() == 5000
    with pytest.raises(OSError, match="No space"):
        reserve.helping(10 * MIB, lambda: file.write([bytes(10 * MIB)], 0))
    with pytest.raises(FileNotFoundError):
        reserve.helping(1, lambda: disk.open("/data/none"))


def test_room_is_found_when_there_is_enough_and_it_can_be_had() -> None:
    disk, reserve = full_disk()
    assert not reserve.finds_room()
    disk.capacity = disk.used_bytes() + enough_bytes(disk.room("/").size_bytes)
    assert reserve.finds_room()
    assert reserve.size == 64 * KIB, "what was tried was not given back"
    assert disk.free_bytes() == enough_bytes(disk.room("/").size_bytes)

    class Quota(SimulatedDisk):
        def room(self, path: str) -> Room:
            return Room(MIB << 10, MIB << 10, MIB << 10)

    disk = Quota()
    disk.make_dirs("/data")
    disk.capacity = 1000
    reserve = Reserve(disk, "/data")
    assert not reserve.finds_room()
    assert (reserve.size, disk.free_bytes()) == (0, 1000)


def test_a_start_gets_a_little() -> None:
    disk, reserve = full_disk(made=MIB)
    reserve.let_start()
    assert 0 < disk.free_bytes() <= 80 * KIB
    disk, reserve = full_disk(leaving=2 * MIB)
    reserve.let_start()
    assert not reserve.is_needed


def test_a_start_needs_less_than_writes_do() -> None:
    disk, reserve = full_disk()
    for leaving in (256 * KIB - 1, 256 * KIB):
        disk.fill(leaving=leaving)
        reserve.let_start()
        assert reserve.is_needed is (leaving < 256 * KIB)
        assert not reserve.finds_room()


def test_a_reserve_that_cannot_be_cut_is_given_up() -> None:
    disk, reserve = full_disk()
    disk.faults = FaultPlan(Fault.WRITE_ERROR, random.Random(0))
    assert not reserve.give(1)
    assert reserve.size == 0


def test_a_file_system_that_cannot_allocate_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.posix_fallocate", unsupported)
    reserve = Reserve(Filesystem(), str(tmp_path))
    reserve.make(3 * MIB + BLOCK_BYTES)
    assert (tmp_path / FILE_NAME).stat().st_size == reserve.size == 3 * MIB + BLOCK_BYTES
    reserve.close()


def test_nothing_is_given_where_nothing_is_left() -> None:
    """Who asks again and again, until there is room, has to come to an end."""
    _, reserve = full_disk()
    assert not reserve.give(0, keep=reserve.size)
    assert not reserve.give(1, keep=reserve.size)
    assert not reserve.give(reserve.size + 1)
    assert reserve.size == 64 * KIB
    assert reserve.give(reserve.size)
    assert (reserve.size, reserve.give(0)) == (0, False)


@pytest.mark.parametrize(("needed", "is_given"), [(0, True), (64 * KIB, True), (64 * KIB + 1, False)])
def test_what_was_written_ahead_goes_first_if_it_is_enough(
    tmp_path: Path, needed: int, is_given: bool
) -> None:
    ahead = Ahead(Filesystem(), str(tmp_path))
    ahead.make(64 * KIB)
    reserve = Reserve(Filesystem(), str(tmp_path), ahead)
    assert reserve.give(needed) == is_given
    assert ahead.size == (0 if is_given else 64 * KIB)
    ahead.drop()
    assert not reserve.give(0)

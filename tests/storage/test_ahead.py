"""Journal written ahead: zeros become frames, what is left of them is the end, and they hide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.disk import SimulatedDisk
from tests.storage.support import FS, append, sync
from tests.support.disk import FullDisk, NotedDisk
from topics.storage import ahead as module
from topics.storage.ahead import Ahead
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import AHEAD, Filesystem, Room
from topics.storage.frame import Frame, FrameDraft, Kind
from topics.storage.journal import Journal, file_name, void_frames
from topics.storage.journal_reader import Damage, JournalReader
from topics.storage.reserve import SHARE, Reserve

KIB = 1024
SIZE = 64 * KIB


class Written:
    """A journal whose current file was written ahead, with one frame in it; another lies before it."""

    def __init__(self, directory: Path, fs: Filesystem = FS) -> None:
        self.directory = directory
        self.ahead = Ahead(fs, str(directory))
        self.journal = Journal(fs, str(directory), [], 0, ahead=self.ahead)
        append(self.journal, 1)
        self.ahead.make(SIZE)
        self.journal.rotate()
        self.base = append(self.journal, 2)
        sync(self.journal)

    @property
    def path(self) -> Path:
        return self.directory / file_name(self.base)

    @property
    def used(self) -> int:
        return FILE_HEADER_BYTES + self.journal.position - self.base

    def reader(self, proven: int = 0) -> JournalReader:
        return JournalReader(FS, str(self.directory), start=0, proven=proven)


def seqs(items: list[Frame | Damage]) -> list[object]:
    return [item.first_seq if isinstance(item, Frame) else "damage" for item in items]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


# --- making and using it ----------------------------------------------------------------------------------


def test_one_that_was_tidied_up_is_done_without(tmp_path: Path) -> None:
    journal = Journal(FS, str(tmp_path), [], 0, ahead=(ahead := Ahead(FS, str(tmp_path))))
    append(journal, 1)
    ahead.make(SIZE)
    (tmp_path / AHEAD).unlink()
    journal.rotate()
    append(journal, 2)
    sync(journal)
    assert seqs(list(JournalReader(FS, str(tmp_path), start=0, proven=0).frames())) == [1, 2]


def test_it_is_zeros_and_synced_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 1000)
    disk = NotedDisk()
    ahead = Ahead(disk, str(tmp_path))
    ahead.make(2500)
    assert (tmp_path / AHEAD).read_bytes() == bytes(2500)
    piece = [("write", AHEAD), ("sync", AHEAD), ("give_way", "")]
    assert disk.notes == [("create", AHEAD), *3 * piece]
    assert disk.written == [(0, 1000), (1000, 1000), (2000, 500)]
    assert ahead.size == 2500


def test_its_name_is_synced_before_a_frame_in_it_counts_as_synced(tmp_path: Path) -> None:
    disk = NotedDisk()
    written = Written(tmp_path, disk)
    name = file_name(written.base)
    assert ("rename", name) in disk.notes
    assert disk.notes[-2:] == [("sync", name), ("sync_dir", tmp_path.name)]
    assert not written.journal.begin_sync().directory


def test_without_room_there_is_none_and_nothing_is_left(tmp_path: Path) -> None:
    ahead = Ahead(FullDisk(), str(tmp_path))
    ahead.make(SIZE)
    assert ahead.size == 0
    assert list(tmp_path.iterdir()) == []
    assert ahead.take(str(tmp_path / "x")) is None


def test_what_an_earlier_process_left_is_never_used(written: Written) -> None:
    written.ahead.make(SIZE)
    left = written.directory / AHEAD
    assert left.exists()
    again = Ahead(FS, str(written.directory))
    assert again.size == 0
    reader = written.reader()
    list(reader.frames())
    Journal(FS, str(written.directory), reader.files(), reader.end, ahead=again).close()
    assert not left.exists()


# --- its end ----------------------------------------------------------------------------------------------


def test_zeros_are_the_end_and_no_tear(written: Written) -> None:
    written.journal.close()
    reader = written.reader(proven=written.journal.position)
    assert seqs(list(reader.frames())) == [1, 2]
    assert (reader.cut, reader.end, reader.damaged_bytes) == (None, written.journal.position, 0)
    assert written.path.stat().st_size == written.used
    assert not (written.directory / "damaged").exists()


def test_zeros_where_something_had_been_safe_are_damage(written: Written) -> None:
    end = append(written.journal, 3)
    append(written.journal, 4)
    with written.path.open("r+b") as file:
        file.seek(FILE_HEADER_BYTES + end - written.base)
        file.write(bytes(written.journal.position - end))
    reader = written.reader(proven=written.journal.position)
    assert seqs(list(reader.frames())) == [1, 2, "damage"]
    again = written.reader(proven=end)
    assert seqs(list(again.frames())) == [1, 2]


def test_zeros_before_a_frame_that_knows_of_a_sync_are_damage(written: Written) -> None:
    lost = append(written.journal, 3)
    begin = written.journal.position
    sync(written.journal)
    append(written.journal, 4)
    with written.path.open("r+b") as file:
        file.seek(FILE_HEADER_BYTES + lost - written.base)
        file.write(bytes(begin - lost))
    assert seqs(list(written.reader().frames())) == [1, 2, "damage", 4]


def test_files_behind_the_zeros_go_if_there_is_nothing_in_them(written: Written) -> None:
    """The power went: of two files, only the names and zeros are there."""
    later = written.directory / file_name(written.journal.position + 500)
    later.write_bytes(bytes(FILE_HEADER_BYTES + 300))
    reader = written.reader()
    assert seqs(list(reader.frames())) == [1, 2]
    assert (reader.cut, reader.end) == (None, written.journal.position)
    assert not later.exists()


def test_what_is_left_is_cut_off_when_the_journal_goes_on_elsewhere(written: Written) -> None:
    used = written.used
    written.journal.rotate()
    append(written.journal, 3)
    assert written.path.stat().st_size == SIZE
    sync(written.journal)
    assert written.path.stat().st_size == used
    assert not written.journal.is_ahead
    written.journal.close()
    assert seqs(list(written.reader().frames())) == [1, 2, 3]


def test_a_clean_stop_leaves_no_zeros(written: Written) -> None:
    written.ahead.make(SIZE)
    written.journal.close(clean=True)
    assert written.path.stat().st_size == written.used
    assert not (written.directory / AHEAD).exists()


def test_a_refused_write_cuts_them_off(written: Written) -> None:
    written.journal.cut_back()
    assert written.path.stat().st_size == written.used
    assert written.journal.ahead_bytes == 0
    append(written.journal, 3)
    written.journal.close()
    assert seqs(list(written.reader().frames())) == [1, 2, 3]


def test_frames_before_zeros_can_be_taken_back(written: Written) -> None:
    begin = written.journal.position
    written.journal.write([FrameDraft(Kind.APPEND, b"refused", topic_id=1, first_seq=3, count=1)])
    void_frames(written.journal, [(begin, written.journal.position)])
    written.journal.close()
    assert seqs(list(written.reader().frames())) == [1, 2]


# --- with the reserve -------------------------------------------------------------------------------------


class Measured(NotedDisk):
    """Says what is free, less what was made since."""

    def __init__(self, directory: Path, free: int) -> None:
        super().__init__()
        self.directory = directory
        self.free = free

    def room(self, path: str) -> Room:
        taken = sum(each.stat().st_size for each in self.directory.iterdir())
        return Room(self.free - taken, self.free - taken, 1 << 40)


def reserve_and_ahead(directory: Path, free: int) -> tuple[Reserve, Ahead]:
    fs = Measured(directory, free)
    ahead = Ahead(fs, str(directory))
    return Reserve(fs, str(directory), ahead), ahead


@pytest.mark.parametrize(
    ("kept", "in_use", "expected"),
    [(0, 0, 64), (16, 0, 48), (16, 24, 24), (48, 24, 0), (48, 0, 16), (52, 0, 0)],
)
def test_both_take_a_sixteenth_of_what_is_free_together(
    tmp_path: Path, kept: int, in_use: int, expected: int
) -> None:
    reserve, ahead = reserve_and_ahead(tmp_path, SHARE * 64 * KIB)
    reserve.make(kept * KIB)
    # What is in use was free as well.
    reserve._fs.free -= in_use * KIB  # type: ignore[attr-defined]
    for _ in range(2):
        reserve.write_ahead(1 << 30, in_use * KIB)
        assert ahead.size == expected * KIB
    # One that is ready is not made again.
    assert reserve._fs.notes.count(("create", AHEAD)) == (expected > 0)  # type: ignore[attr-defined]
    reserve.close()


def test_the_reserve_comes_first(tmp_path: Path) -> None:
    reserve, ahead = reserve_and_ahead(tmp_path, SHARE * 64 * KIB)
    reserve.write_ahead(1 << 30, 0)
    assert ahead.size == 64 * KIB
    reserve.make(32 * KIB)
    assert (reserve.size, ahead.size) == (32 * KIB, 0)
    assert not (tmp_path / AHEAD).exists()
    reserve.close()


def test_where_there_is_no_room_it_is_the_first_to_go() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    ahead = Ahead(disk, "/data")
    reserve = Reserve(disk, "/data", ahead)
    reserve.make(64 * KIB)
    reserve.write_ahead(SIZE, 0)
    disk.fill()
    assert reserve.give(100)
    assert (ahead.size, reserve.size, reserve.is_needed) == (0, 64 * KIB, True)
    assert disk.free_bytes() == SIZE
    assert reserve.give(100)
    assert reserve.size < 64 * KIB

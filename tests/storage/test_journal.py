"""Writing frames: positions, rotation, what one sync covers, and which files may go."""

from pathlib import Path

import pytest

from tests.storage.support import FS, append, in_file, journal_files, new_journal, scan, seqs, sync
from tests.support.damage import in_other_format
from tests.support.disk import FullDisk, NotedDisk
from topics.storage.fileheader import FILE_HEADER_BYTES, OtherFormat
from topics.storage.frame import HEADER_BYTES, FrameDraft, Kind, decode_header
from topics.storage.journal import (
    Journal,
    JournalFile,
    decode_file_header,
    encode_file_header,
    file_name,
)

FRAME = HEADER_BYTES + len(b"payload")


def test_file_header_round_trip() -> None:
    assert decode_file_header(encode_file_header(12345)) == 12345
    assert decode_file_header(b"\0" * FILE_HEADER_BYTES) is None
    with pytest.raises(OtherFormat):
        decode_file_header(in_other_format(encode_file_header(0)))


def test_a_frame_says_what_was_synced_before_it(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    sync(journal)
    journal.write([FrameDraft(Kind.DELETE, b"x", topic_id=3, flags=1)])
    header = decode_header(journal.current_file().read(HEADER_BYTES, in_file(FRAME)))
    assert header is not None
    assert (header.synced, header.kind, header.topic_id, header.flags) == (FRAME, Kind.DELETE, 3, 1)
    journal.close()


# --- rotation and syncs -------------------------------------------------------------------------------------


def test_the_first_sync_covers_file_and_directory(tmp_path: Path) -> None:
    disk = NotedDisk()
    journal = Journal(disk, str(tmp_path), [], 0)
    assert not journal.only_current_unsynced
    append(journal, 1)
    disk.notes.clear()
    sync(journal)
    assert disk.notes == [("sync", file_name(0)), ("sync_dir", tmp_path.name)]
    assert journal.only_current_unsynced
    disk.notes.clear()
    append(journal, 2)
    sync(journal)
    assert disk.notes == [("write", file_name(0)), ("sync", file_name(0))]
    assert journal.synced == journal.position
    journal.close()


def test_a_sync_after_rotation_covers_both_files_oldest_first(tmp_path: Path) -> None:
    disk = NotedDisk()
    journal = Journal(disk, str(tmp_path), [], 0)
    append(journal, 1)
    old = journal.current_file()
    journal.rotate()
    append(journal, 2)
    assert not journal.only_current_unsynced
    disk.notes.clear()
    sync(journal)
    assert disk.notes == [("sync", file_name(0)), ("sync", file_name(FRAME)), ("sync_dir", tmp_path.name)]
    assert old.fileno() == -1
    assert journal.current_file().fileno() >= 0
    assert journal.only_current_unsynced
    journal.close()


def test_what_is_written_during_a_sync_is_not_covered(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    ticket = journal.begin_sync()
    append(journal, 2)
    ticket.run()
    journal.finish_sync(ticket)
    assert journal.synced == FRAME
    assert journal.position == 2 * FRAME
    journal.close()


def test_a_rotation_during_a_sync_waits_for_the_next_one(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    ticket = journal.begin_sync()
    journal.rotate()
    append(journal, 2)
    ticket.run()
    journal.finish_sync(ticket)
    # The new file's name is not durable yet: the next ticket has to sync the directory again.
    assert not journal.only_current_unsynced
    later = journal.begin_sync()
    assert later.directory == str(tmp_path)
    assert later.files == [journal.current_file()]
    later.run()
    journal.finish_sync(later)
    assert journal.only_current_unsynced
    journal.close()


# --- starting again -----------------------------------------------------------------------------------------


def reopen(directory: Path, disk: NotedDisk) -> Journal:
    reader, _ = scan(directory)
    return Journal(disk, str(directory), reader.files(), reader.end)


def test_what_a_killed_process_left_is_synced_before_anything_builds_on_it(tmp_path: Path) -> None:
    killed = new_journal(tmp_path)
    append(killed, 1)
    killed.rotate()
    append(killed, 2)
    disk = NotedDisk()
    journal = reopen(tmp_path, disk)
    assert disk.notes[:4] == [
        ("sync", file_name(0)),
        ("sync", file_name(FRAME)),
        ("sync_dir", tmp_path.name),
        ("create", file_name(2 * FRAME)),
    ]
    assert journal.synced == journal.position == 2 * FRAME
    assert journal.retained_bytes() == 2 * FRAME
    journal.close()
    killed.close()


def test_frames_that_a_failed_sync_may_have_lost_are_written_again(tmp_path: Path) -> None:
    """To the kernel they are clean: syncing alone would not bring them to the disk."""
    killed = new_journal(tmp_path)
    for seq in (1, 2):
        append(killed, seq)
    killed.rotate()
    append(killed, 3)
    content = [path.read_bytes() for path in journal_files(tmp_path)]
    reader, _ = scan(tmp_path)
    disk = NotedDisk()
    journal = Journal(disk, str(tmp_path), reader.files(), reader.end, doubtful_from=FRAME)
    assert disk.notes[:4] == [
        ("write", file_name(0)),
        ("sync", file_name(0)),
        ("write", file_name(2 * FRAME)),
        ("sync", file_name(2 * FRAME)),
    ]
    assert [path.read_bytes() for path in journal_files(tmp_path)][:2] == content
    journal.close()
    killed.close()


@pytest.mark.parametrize(
    ("doubtful_from", "begins"),
    [
        (0, [0, 0]),
        (FRAME, [in_file(FRAME), 0]),
        (2 * FRAME, [0]),
        (2 * FRAME + 1, [in_file(1)]),
        (3 * FRAME, []),
    ],
)
def test_from_where_on_they_are_written_again(tmp_path: Path, doubtful_from: int, begins: list[int]) -> None:
    """A file that began behind what is sure is doubtful from its header on."""
    killed = new_journal(tmp_path)
    for seq in (1, 2):
        append(killed, seq)
    killed.rotate()
    append(killed, 3)
    killed.close()
    reader, _ = scan(tmp_path)
    disk = NotedDisk()
    Journal(disk, str(tmp_path), reader.files(), reader.end, doubtful_from=doubtful_from).close()
    # The last one is the header of the file that it begins.
    assert [at for at, _ in disk.written] == [*begins, 0]


def test_without_room_for_a_file_it_goes_on_in_the_last_that_was_written_to(tmp_path: Path) -> None:
    """The one that an earlier process had begun, and not written to, is gone by then."""
    journal = new_journal(tmp_path)
    append(journal, 1)
    journal.close()
    reopen(tmp_path, NotedDisk()).close()
    reader, _ = scan(tmp_path)
    assert reader.files() == [JournalFile(0, FRAME), JournalFile(FRAME, FRAME)]
    journal = Journal(FullDisk(), str(tmp_path), reader.files(), reader.end)
    assert journal.files == [JournalFile(0, FRAME)]
    append(journal, 2)
    journal.close()
    assert seqs(scan(tmp_path)[1]) == [1, 2]


def test_only_a_file_that_is_begun_for_it_may_adopt(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    for seq, to_adopt in enumerate((False, True, False)):
        append(journal, seq)
        journal.rotate(to_adopt=to_adopt)
        assert journal.may_adopt is to_adopt
    journal.close()


def test_a_journal_may_start_behind_what_is_left(tmp_path: Path) -> None:
    """A snapshot can know more than a journal that lost its end: addresses are never used twice."""
    journal = new_journal(tmp_path)
    append(journal, 1)
    journal.close()
    reader, _ = scan(tmp_path)
    journal = Journal(FS, str(tmp_path), reader.files(), 1000)
    assert append(journal, 2) == 1000
    journal.close()
    _, items = scan(tmp_path, start=1000)
    assert seqs(items) == [2]


# --- letting go ---------------------------------------------------------------------------------------------


def test_only_whole_files_are_left_behind(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    for seq in (1, 2, 3):
        append(journal, seq)
        append(journal, seq)
        journal.rotate()
    first, second, third, _ = (str(path) for path in journal_files(tmp_path))
    assert journal.leave_behind(2 * FRAME - 1) == []
    assert journal.leave_behind(2 * FRAME) == [first]
    assert journal.retained_bytes() == 4 * FRAME
    assert journal.leave_behind(10**9) == [second, third]
    assert journal.files == [JournalFile(6 * FRAME, 6 * FRAME)]
    journal.close()


@pytest.mark.parametrize(
    ("kept_from", "gone"), [(None, 2), (0, 0), (FRAME, 1), (2 * FRAME, 2), (9 * FRAME, 2)]
)
def test_files_that_a_backup_holds_stay(tmp_path: Path, kept_from: int | None, gone: int) -> None:
    journal = new_journal(tmp_path)
    for number in range(3):
        append(journal, number)
        journal.rotate()
    journal.kept_from = kept_from
    assert journal.leave_behind(2 * FRAME) == [journal._path(FRAME * number) for number in range(gone)]
    assert journal.files[0].base == FRAME * gone
    journal.close()

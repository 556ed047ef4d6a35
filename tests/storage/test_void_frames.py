"""Frames that are taken back: not there for any reader, whatever lies around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.support import FS, append, journal_files, new_journal, scan, sync
from topics.storage.filesystem import File
from topics.storage.frame import HEADER_BYTES, Frame, FrameDraft, Kind, decode_header
from topics.storage.journal import Journal, JournalFile, void_frames


def write(journal: Journal, seq: int, payload: bytes = b"payload") -> tuple[int, int]:
    """Write one frame; return where it begins and ends in the journal."""
    begin = journal.position
    journal.write([FrameDraft(Kind.APPEND, payload, topic_id=1, first_seq=seq, count=1, ts=5)])
    return begin, journal.position


def frames(directory: Path) -> list[Frame]:
    _, items = scan(directory)
    assert all(isinstance(item, Frame) for item in items)
    return [item for item in items if isinstance(item, Frame)]


def found_seqs(directory: Path) -> list[int]:
    return [frame.first_seq for frame in frames(directory) if frame.kind == Kind.APPEND]


def test_what_lies_around_stays(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    second = write(journal, 2, b"x" * 10_000)
    append(journal, 3)
    fourth = write(journal, 4)
    void_frames(journal, [second, fourth])
    append(journal, 5)
    journal.close()
    assert found_seqs(tmp_path) == [1, 3, 5]


def test_a_void_frame_keeps_its_place_and_its_length(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    frame = write(journal, 1, b"abc")
    before = journal_files(tmp_path)[0].stat().st_size
    void_frames(journal, [frame])
    journal.close()
    (path,) = journal_files(tmp_path)
    assert path.stat().st_size == before
    header = decode_header(path.read_bytes(), 32)
    assert header is not None
    assert (header.kind, header.payload_length, header.topic_id) == (Kind.VOID, 3, 0)


def test_its_payload_may_never_have_reached_the_disk(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    frame = write(journal, 1, b"x" * 5000)
    append(journal, 2)
    void_frames(journal, [frame])
    journal.close()
    (path,) = journal_files(tmp_path)
    with path.open("r+b") as file:
        file.seek(32 + HEADER_BYTES)
        file.write(bytes(5000))
    assert found_seqs(tmp_path) == [2]


def test_an_operation_of_several_frames_goes_whole(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    reserve = FrameDraft(Kind.RESERVE, b"\x01", topic_id=1)
    record = FrameDraft(Kind.APPEND, b"x" * 5000, topic_id=1, first_seq=1, count=1)
    journal.write([reserve, record])
    end = journal.position
    append(journal, 2)
    void_frames(journal, [(0, end)])
    journal.close()
    assert [(frame.kind, frame.first_seq) for frame in frames(tmp_path)] == [(Kind.APPEND, 2)]


def test_across_files_and_with_the_heads_that_speak_of_it(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    sync(journal)
    heads = FrameDraft(Kind.HEADS, b"\x90")
    journal.write([heads])
    second = write(journal, 2)
    journal.write([heads])
    journal.rotate()
    third = write(journal, 3)
    append(journal, 4)
    void_frames(journal, [second, third])
    journal.close()
    kept = frames(tmp_path)
    assert found_seqs(tmp_path) == [1, 4]
    # The heads before it knew nothing of it.
    assert sum(frame.kind == Kind.HEADS for frame in kept) == 1


class NoRoom(type(FS)):  # type: ignore[misc]
    """No file can be begun; one that is there can be written to."""

    def create(self, path: str) -> File:
        raise OSError(28, "No space left on device", path)


def test_without_room_and_without_a_file_there_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        Journal(NoRoom(), str(tmp_path), [], 0)
    # One whose end is not where the journal goes on is of no use either.
    new_journal(tmp_path).close()
    with pytest.raises(OSError, match="No space"):
        Journal(NoRoom(), str(tmp_path), [JournalFile(0, 0)], 500)

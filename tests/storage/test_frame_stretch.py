"""Small frames read together: the same frames, however they are read, and nothing that is not intact."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.support import FS
from topics import codec
from topics.codec.frames import SMALL_RECORDS
from topics.storage import frame_stretch
from topics.storage import journal as journal_module
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.frame import FRAME_MAGIC_BYTES, HEADER_BYTES, Frame, FrameDraft, Kind, encode_frames
from topics.storage.frame_stretch import MIN_FRAMES, FrameStretch
from topics.storage.journal import Journal, file_name
from topics.storage.journal_reader import Damage, JournalReader

pytestmark = pytest.mark.usefixtures("both_codecs")

MANY = 4 * MIN_FRAMES


class Book:
    """A journal of small frames."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = Journal(FS, str(directory), [], 0)
        self.next_seq = 1
        self.positions: list[int] = []

    def append(
        self, data: str = "x", count: int = 1, topic: int = 7, ts: int = 5, flags: int = 0, ahead_ms: int = 0
    ) -> None:
        rows = b"".join(
            b'{"$seq":%d,"data":%s}\n' % (self.next_seq, json.dumps(data).encode()) for _ in range(count)
        )
        lengths = (len(data) + 2).to_bytes(4, "little") * count
        payload = len(rows).to_bytes(4, "little") + bytes(4) + rows + lengths
        self.positions.append(self.journal.position)
        frame = FrameDraft(Kind.APPEND, payload, topic, self.next_seq, count, ts, flags, ahead_ms)
        self.journal.write([frame])
        self.next_seq += count

    def singles(self, count: int = MANY) -> None:
        for number in range(count):
            self.append("x" * (number % 9), ts=5 + number // 10)

    def reader(self, proven: int = 0) -> JournalReader:
        return JournalReader(FS, str(self.directory), start=0, proven=proven)

    def alone(self) -> list[Frame | Damage]:
        return list(self.reader().frames())

    def together(self, border: int = 0, proven: int = 0) -> list[Frame | Damage | FrameStretch]:
        return list(self.reader(proven).stretches(border))

    def flip(self, position: int) -> None:
        with FS.open(str(self.directory / file_name(0))) as file:
            at = FILE_HEADER_BYTES + position
            file.write([bytes([file.read(1, at)[0] ^ 1])], at)


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    # Otherwise the first windows are smaller than what is read here.
    monkeypatch.setattr(frame_stretch, "MIN_WINDOW", frame_stretch.MAX_WINDOW)
    monkeypatch.setattr(frame_stretch, "TRY_AGAIN_BYTES", 0)
    book = Book(tmp_path)
    yield book
    book.journal.close()


def apart(items: list[Frame | Damage | FrameStretch]) -> list[Frame | Damage]:
    return [one for item in items for one in (item.frames if isinstance(item, FrameStretch) else [item])]


def stretches(items: list[Frame | Damage | FrameStretch]) -> list[FrameStretch]:
    return [item for item in items if isinstance(item, FrameStretch)]


def test_single_writes_come_together(book: Book) -> None:
    book.singles()
    first, stretch = book.together()
    assert isinstance(first, Frame)
    assert isinstance(stretch, FrameStretch)
    assert (stretch.topic_id, stretch.first_seq, stretch.last_seq) == (7, 2, MANY)
    assert (stretch.position, stretch.end) == (first.end, book.journal.position)
    assert apart([first, stretch]) == book.alone()


def test_their_rows_lengths_and_times_are_those_of_the_frames(book: Book) -> None:
    book.append()
    for number in range(MANY):
        book.append("y" * (number % 5), count=1 + number % SMALL_RECORDS, ts=number // 7)
    (stretch,) = stretches(book.together())
    rows, lengths, times, count = b"", b"", [], 0
    for frame in stretch.frames:
        payload = bytes(frame.payload)
        rows += payload[8 : -4 * frame.count]
        lengths += payload[-4 * frame.count :]
        if not times or times[-1][1] != frame.ts:
            times.append((count, frame.ts))
        count += frame.count
    assert stretch.parts() == (rows, lengths)
    assert stretch.times() == times


CHANGES: dict[str, Callable[[Book], None]] = {
    "topic": lambda book: book.append(topic=8),
    "flags": lambda book: book.append(flags=1),
    "count": lambda book: book.append(count=SMALL_RECORDS + 1),
    "kind": lambda book: book.journal.write([FrameDraft(Kind.CLOCK)]),
    "seq": lambda book: setattr(book, "next_seq", book.next_seq + 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_different_ends_a_stretch(book: Book, change: str) -> None:
    book.singles()
    CHANGES[change](book)
    book.singles()
    items = book.together()
    assert apart(items) == book.alone()
    before, after = stretches(items)
    assert before.last_seq == MANY
    assert after.last_seq == book.next_seq - 1


def test_data_that_looks_like_a_frame(book: Book) -> None:
    book.singles()
    book.append(FRAME_MAGIC_BYTES.decode())
    book.singles()
    items = book.together()
    assert apart(items) == book.alone()
    assert len(stretches(items)) == 1


@pytest.mark.parametrize("where", [0, 5, 10, 30, 45, 62, HEADER_BYTES + 1, HEADER_BYTES + 12])
def test_what_is_damaged_ends_a_stretch_and_is_found(book: Book, where: int) -> None:
    book.singles()
    victim = MANY // 2
    book.flip(book.positions[victim] + where)
    items = book.together(proven=book.journal.position)
    assert apart(items) == list(book.reader(book.journal.position).frames())
    assert [item.position for item in items if isinstance(item, Damage)] == [book.positions[victim]]
    before, after = stretches(items)
    assert before.last_seq == victim
    assert after.last_seq == MANY


def test_a_frame_that_claims_a_sync_beyond_itself_is_not_believed(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.singles()
    with monkeypatch.context() as patch:
        patch.setattr(
            journal_module, "encode_frames", lambda frames, at, _: encode_frames(frames, at + 1, at + 1)
        )
        book.append()
    book.singles()
    items = book.together(proven=book.journal.position)
    assert apart(items) == list(book.reader(book.journal.position).frames())
    assert sum(isinstance(item, Damage) for item in items) == 1


# --- in bulk ----------------------------------------------------------------------------------------------


def test_edges_outside_of_the_window_are_refused() -> None:
    window = bytes(200)
    for edges in ([0, 201], [-1, 100], [0, 71], [150, 100], [0, 72, 100]):
        with pytest.raises(ValueError, match="no such frames"):
            codec.frame_parts(window, array("q", edges))
    assert codec.frame_parts(window, array("q", [0, 80, 160])) == (bytes(16), b"")
    assert codec.find_frames(window, 1, 1, 0) == bytes(8)

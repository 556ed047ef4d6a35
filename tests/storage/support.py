"""What the storage tests share: journals to damage, columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topics.storage.columns import CodedNames, Columns
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.journal_reader import Damage, JournalReader

FS = Filesystem()


def append(journal: Journal, first_seq: int, payload: bytes = b"payload", *, topic_id: int = 1) -> int:
    """Write one frame with one record; returns its position."""
    position = journal.position
    journal.write([FrameDraft(Kind.APPEND, payload, topic_id, first_seq, count=1, ts=9)])
    return position


def sync(journal: Journal) -> None:
    ticket = journal.begin_sync()
    ticket.run()
    journal.finish_sync(ticket)


def new_journal(directory: Path) -> Journal:
    directory.mkdir(exist_ok=True)
    return Journal(FS, str(directory), [], 0)


def scan(
    directory: Path, *, start: int = 0, proven: int = 0, fs: Filesystem = FS
) -> tuple[JournalReader, list[Frame | Damage]]:
    reader = JournalReader(fs, str(directory), start=start, proven=proven)
    return reader, list(reader.frames())


def seqs(items: Sequence[Frame | Damage]) -> list[int | str]:
    """Frames by their seq, damage by a word."""
    return ["damage" if isinstance(item, Damage) else item.first_seq for item in items]


def journal_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.journal"))


def in_file(position: int, base: int = 0) -> int:
    """Where a journal position lies in its file."""
    return FILE_HEADER_BYTES + position - base


def columns(count: int = 4, *, base: int = 1, full: bool = False) -> Columns:
    """A run with every optional column (`full`) or with none."""
    rows = [
        b'{"$seq":%d,"$ts":%d,"data":%d%s}\n'
        % (base + i, 100 + i, i, b',"meta":{}' if full and i % 2 else b"")
        for i in range(count)
    ]
    made = Columns(
        base,
        count,
        b"".join(rows),
        np.cumsum([len(row) for row in rows]).astype(np.uint32),
        np.array([len(str(i)) for i in range(count)], np.uint32),
        np.arange(100, 100 + count, dtype=np.int64),
    )
    if full:
        made.meta_lens = np.array([2 * (i % 2) for i in range(count)], np.uint32)
        nodes = CodedNames(np.array([i % 3 for i in range(count)], np.uint32), ["n1", "ü2"])
        # In the order they appeared, which is not the order of the alphabet; "unused" has no record left.
        tag_codes = np.array([(i + 1) % 3 for i in range(count)], np.uint32)
        made.names = (CodedNames(tag_codes, ["zoo", "ant", "unused"]), nodes)
        made.hops = np.array([i % 2 for i in range(count)], np.uint8)
    return made

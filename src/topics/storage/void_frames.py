"""Frames that were written and have to be taken back: what was refused must not be there after a restart.

Other frames may lie behind them, so they cannot be cut off. Their headers are written once more, as those of
frames that mean nothing. The payload stays what it is and is not looked at again: it may never have reached
the disk.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import File
from topics.storage.frame import HEADER_BYTES, Header, Kind, decode_header
from topics.storage.journal import Journal, encode_header


@dataclass(slots=True)
class _Written:
    """A frame in one of the journal's files."""

    header: Header
    file: File
    offset: int

    def void(self) -> None:
        header = self.header
        checksum, length = header.payload_checksum, header.payload_length
        void = encode_header(Kind.VOID, 0, 0, 0, 0, header.ts, header.synced, checksum, length)
        self.file.write([void], self.offset)


def void_frames(journal: Journal, taken_back: Iterable[list[bytes]]) -> None:
    """Take back what these buffers brought into the journal, and no sync has covered.

    On disk when it returns; raises OSError when that cannot be made sure. Where frames are alike to the last
    byte, the last of them are meant: what is taken back came behind what has taken effect.
    """
    wanted = Counter(header for buffers in taken_back for header, _ in _frames(b"".join(buffers)))
    alike: dict[Header, list[_Written]] = {}
    for frame in _unsynced_frames(journal):
        if frame.header in wanted:
            alike.setdefault(frame.header, []).append(frame)
        elif alike and frame.header.kind == Kind.HEADS:
            # It tells of seqs that are given out anew: they were never acknowledged.
            frame.void()
    for header, frames in alike.items():
        for frame in frames[-wanted[header] :]:
            frame.void()
    for _, file in journal.unsynced_files():
        file.sync()


def _unsynced_frames(journal: Journal) -> Iterator[_Written]:
    ends = {file.base: file.end for file in journal.files}
    for base, file in journal.unsynced_files():
        start = FILE_HEADER_BYTES + max(journal.synced - base, 0)
        # Behind that there may be zeros that were written ahead.
        end = FILE_HEADER_BYTES + ends[base] - base
        for header, at in _frames(file.read(end - start, start)):
            yield _Written(header, file, start + at)


def _frames(data: bytes) -> Iterator[tuple[Header, int]]:
    """Headers, and where they lie."""
    at = 0
    while (header := decode_header(data, at)) is not None:
        yield header, at
        at += HEADER_BYTES + header.payload_length

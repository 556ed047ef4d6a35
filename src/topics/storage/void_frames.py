"""Void frames that were written and have to be taken back, so that a restart does not bring them back.

Other frames may follow them, so the journal cannot be cut off there. Their headers are overwritten with
headers of VOID frames, which mean nothing. The payload stays and is not read again: it may never have reached
the disk.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import File
from topics.storage.frame import HEADER_BYTES, Header, Kind, decode_header, encode_header
from topics.storage.journal import Journal


@dataclass(slots=True)
class _WrittenFrame:
    """A frame in one of the journal's files."""

    header: Header
    # In the journal, and in the file.
    position: int
    file: File
    offset: int

    def void(self) -> None:
        header = self.header
        void = encode_header(
            Kind.VOID,
            0,
            0,
            0,
            0,
            header.ts,
            header.payload_checksum,
            header.payload_length,
            position=self.position,
            synced=header.synced,
        )
        self.file.write([void], self.offset)


def void_frames(journal: Journal, ranges: Iterable[tuple[int, int]]) -> None:
    """Void the frames in these ranges of positions, none of which a sync has covered.

    A range begins where its first frame begins, and ends where its last frame ends. HEADS frames after the
    first voided frame are voided too. All of it is on disk when this returns; raises OSError when that is not
    certain.
    """
    wanted = sorted(ranges)
    at, has_voided = 0, False
    for frame in _unsynced_frames(journal):
        while at < len(wanted) and wanted[at][1] <= frame.position:
            at += 1
        if at < len(wanted) and wanted[at][0] <= frame.position:
            frame.void()
            has_voided = True
        elif has_voided and frame.header.kind == Kind.HEADS:
            # It names seqs that are given out again: they were never acknowledged.
            frame.void()
    for _, file in journal.unsynced_files():
        file.sync()


def _unsynced_frames(journal: Journal) -> Iterator[_WrittenFrame]:
    ends = {file.base: file.end for file in journal.files}
    for base, file in journal.unsynced_files():
        first = max(journal.synced, base)
        start = FILE_HEADER_BYTES + first - base
        # After the end there may be zeros that were written ahead.
        data = file.read(FILE_HEADER_BYTES + ends[base] - base - start, start)
        at = 0
        while (header := decode_header(data, at)) is not None:
            yield _WrittenFrame(header, first + at, file, start + at)
            at += HEADER_BYTES + header.payload_length

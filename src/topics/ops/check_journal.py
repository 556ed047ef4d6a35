"""Checking the journal and the witness of a data directory: every header, every frame, and the end."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from topics.storage import (
    FILE_HEADER_BYTES,
    Damage,
    Directories,
    Filesystem,
    Frame,
    JournalReader,
    Kind,
    Testimony,
    Witness,
    decode_file_header,
    numbered_files,
    read_file,
)
from topics.storage import witness as witness_file
from topics.storage.journal import file_name

PROBLEM, NOTE = "problem", "note"
_KINDS = frozenset(map(int, Kind))
# Frames that hand out seqs, and so tell in their header which.
_RECORDS = (Kind.APPEND, Kind.KEYED, Kind.ADVANCE, Kind.ROUTE, Kind.GROUP)


@dataclass(slots=True, frozen=True)
class Finding:
    """A note is what a server puts right by itself, or what was announced before."""

    severity: str
    file: str
    text: str


class JournalCheck:
    def __init__(
        self,
        fs: Filesystem,
        dirs: Directories,
        needed_from: int,
        topic: Callable[[int], str],
        progress: Callable[[int], None],
    ) -> None:
        self._fs = fs
        self._dirs = dirs
        self._needed_from = needed_from
        self._topic = topic
        self._progress = progress
        self._bases = numbered_files(fs, dirs.journal, file_name)
        # Frames that adopt segments, as far as it was read.
        self.adoptions: list[Frame] = []

    def _finding(self, severity: str, path: str, text: str) -> Finding:
        return Finding(severity, os.path.relpath(path, self._dirs.root), text)

    def _at(self, severity: str, position: int, text: str) -> Finding:
        base = max((base for base in self._bases if base <= position), default=self._bases[0])
        return self._finding(severity, self._dirs.journal_path(base), text)

    def findings(self) -> Iterator[Finding]:
        yield from self._check_witness()
        witness = Witness(self._fs, self._dirs.root).previous
        if not self._bases:
            if witness.acked:
                text = f"holds no file, but had been acknowledged up to {witness.acked}"
                yield self._finding(PROBLEM, self._dirs.journal, text)
            return
        yield from self._check_headers()
        if self._bases[0] > self._needed_from:
            text = f"begins at position {self._bases[0]}; the snapshots need it from {self._needed_from} on"
            yield self._finding(PROBLEM, self._dirs.journal, text)
        yield from self._check_frames(witness)

    def _check_witness(self) -> Iterator[Finding]:
        path = self._dirs.witness
        if not self._fs.exists(path):
            text = "is missing; without it, a torn end of the journal is judged by the journal alone"
            yield self._finding(NOTE, path, text)
            return
        if not witness_file.is_intact(read_file(self._fs, path)):
            text = "is damaged: what the last process had promised is not known any more"
            yield self._finding(PROBLEM, path, text)

    def _check_headers(self) -> Iterator[Finding]:
        for base in self._bases:
            with self._fs.open(self._dirs.journal_path(base)) as file:
                header = file.read(FILE_HEADER_BYTES, 0)
                self._progress(file.size())
            # One of zeros was written ahead, and no frame behind it was ever promised.
            if header.strip(b"\0") and decode_file_header(header) is None:
                text = "has a damaged header; its frames can still be read, thanks to the file's name"
                yield self._at(PROBLEM, base, text)

    def _check_frames(self, witness: Testimony) -> Iterator[Finding]:
        reader = JournalReader(self._fs, self._dirs.journal, start=self._bases[0], proven=witness.proven)
        end = reader.end
        for item in reader.frames():
            if isinstance(item, Damage):
                yield self._damage(item)
            elif item.kind == Kind.ADOPT:
                self.adoptions.append(item)
            elif item.kind not in _KINDS:
                text = f"has a frame of an unknown kind {item.kind} at position {item.position}"
                yield self._at(PROBLEM, item.position, text)
        if reader.cut is not None:
            text = (
                f"ends in {end - reader.cut} bytes that were being written when the process ended, "
                "and were never promised; the next start puts them aside"
            )
            yield self._at(NOTE, reader.cut, text)
        if witness.same_boot and witness.acked > reader.end:
            text = f"ends at position {reader.end}, but had been acknowledged up to {witness.acked}"
            yield self._at(PROBLEM, reader.end, text)

    def _damage(self, damage: Damage) -> Finding:
        text = f"is damaged from position {damage.position} to {damage.end}"
        header = damage.header
        if damage.end <= self._needed_from:
            return self._at(NOTE, damage.position, f"{text}, which no snapshot needs any more")
        if header is None:
            text += ": what it said is lost, and any topic may be affected"
        elif header.kind in _RECORDS and header.topic_id:
            last, topic = header.last_seq, self._topic(header.topic_id)
            text += (
                f": seqs {header.first_seq} to {last} of topic {topic} are lost from it, "
                "and announced unless a segment has them"
            )
        else:
            text += f": a change of kind {header.kind} is lost"
        return self._at(PROBLEM, damage.position, text)

"""Reading the journal back: intact frames in order, damage announced, a torn tail cut.

A bad frame is *interior damage* when something proves that it had been safe: a later frame that says the
journal was synced beyond it, or the witness of a process that was killed on this very boot. Then the scan
goes on behind it and yields a `Damage`. Without such proof it is a *torn tail*: everything from there on
was never promised to survive, and is cut (after a copy was put aside).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from topics.storage.checksum import checksum
from topics.storage.filesystem import Filesystem, write_file_atomically
from topics.storage.frame import FRAME_MAGIC_BYTES, HEADER_BYTES, Frame, Header, decode_header
from topics.storage.journal import (
    FILE_HEADER_BYTES,
    SUFFIX,
    JournalFile,
    decode_file_header,
    file_name,
)

QUARANTINE = "damaged"


@dataclass(slots=True, frozen=True)
class Damage:
    """A stretch of journal that cannot be read. The header is there when it survived."""

    position: int
    end: int
    header: Header | None


@dataclass(slots=True)
class _Source:
    number: int
    base: int
    data: memoryview  # the frames, without the file header

    @property
    def end(self) -> int:
        return self.base + len(self.data)


def read_frame(data: memoryview, at: int, base: int) -> tuple[Frame | None, Header | None]:
    header = decode_header(data, at)
    if header is None:
        return None, None
    start = at + HEADER_BYTES
    payload = data[start : start + header.payload_length]
    if len(payload) != header.payload_length or checksum(payload) != header.payload_checksum:
        return None, header
    frame = Frame(
        base + at,
        header.kind,
        header.flags,
        header.count,
        header.topic_id,
        header.first_seq,
        header.ts,
        header.synced,
        payload,
    )
    return frame, header


class JournalReader:
    """One pass over the journal of a previous process."""

    def __init__(self, fs: Filesystem, directory: str, *, start: int, proven: int) -> None:
        """`start`: first position wanted. `proven`: everything below it is known to have been written."""
        self._fs = fs
        self._directory = directory
        self._start = start
        self._proven = proven
        self._sources = self._open_sources()
        self.end = self._sources[-1].end if self._sources else start
        self.cut: tuple[int, int] | None = None
        self.damaged_bytes = 0

    def _open_sources(self) -> list[_Source]:
        sources: list[_Source] = []
        for name in self._fs.list(self._directory):
            if not name.endswith(SUFFIX) or not name[: -len(SUFFIX)].isdigit():
                continue
            file = self._fs.open(os.path.join(self._directory, name))
            data = file.map()
            file.close()
            base = decode_file_header(data)
            if base is None:
                # A header that did not reach the disk: its place follows from the file before it.
                base = sources[-1].end if sources else 0
            sources.append(_Source(int(name[: -len(SUFFIX)]), base, data[FILE_HEADER_BYTES:]))
        return sources

    @property
    def size(self) -> int:
        return max(self.end - self._start, 1)

    def files(self) -> list[JournalFile]:
        return [JournalFile(s.number, s.base, s.end) for s in self._sources]

    def frames(self) -> Iterator[Frame | Damage]:
        for index, source in enumerate(self._sources):
            if source.end <= self._start:
                continue
            at = max(self._start - source.base, 0)
            while at < len(source.data):
                frame, header = read_frame(source.data, at, source.base)
                if frame is not None:
                    yield frame
                    at = frame.end - source.base
                    continue
                if not self._was_safe(index, at):
                    self._cut(index, at)
                    return
                resumed = _next_intact(source, at + 1)
                end = len(source.data) if resumed is None else resumed
                self.damaged_bytes += end - at
                yield Damage(source.base + at, source.base + end, header)
                at = end

    def _was_safe(self, index: int, at: int) -> bool:
        position = self._sources[index].base + at
        if self._proven > position:
            return True
        for later in range(index, len(self._sources)):
            source = self._sources[later]
            scan: int | None = at + 1 if later == index else 0
            while scan is not None and (scan := _next_intact(source, scan)) is not None:
                frame, _ = read_frame(source.data, scan, source.base)
                assert frame is not None
                if frame.synced > position:
                    return True
                scan = frame.end - source.base
        return False

    def _cut(self, index: int, at: int) -> None:
        source = self._sources[index]
        self.cut = (source.base + at, self.end)
        self.end = source.base + at
        for later in self._sources[index + 1 :]:
            self._put_aside(later, 0)
            self._fs.remove(os.path.join(self._directory, file_name(later.number)))
        self._put_aside(source, at)
        file = self._fs.open(os.path.join(self._directory, file_name(source.number)))
        file.truncate(FILE_HEADER_BYTES + at)
        file.sync()
        file.close()
        self._fs.sync_dir(self._directory)
        self._sources = [*self._sources[:index], _Source(source.number, source.base, source.data[:at])]

    def _put_aside(self, source: _Source, at: int) -> None:
        tail = bytes(source.data[at:])
        if tail.strip(b"\0"):
            directory = os.path.join(self._directory, QUARANTINE)
            self._fs.make_dirs(directory)
            write_file_atomically(self._fs, directory, f"{source.base + at:020d}.tail", [tail])


def _next_intact(source: _Source, at: int) -> int | None:
    """Offset of the next frame whose header and payload both verify."""
    data = bytes(source.data)
    while (at := data.find(FRAME_MAGIC_BYTES, at)) >= 0:
        frame, _ = read_frame(source.data, at, source.base)
        if frame is not None:
            return at
        at += 1
    return None

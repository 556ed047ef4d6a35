"""Reading the journal back: intact frames in order, damage announced, a torn tail cut.

A bad frame is *interior damage* when something proves that it had been safe: a later frame that says the
journal was synced beyond it, or the witness of a process that was killed on this very boot. Then the scan
goes on behind it and yields a `Damage`. Without such proof it is a *torn tail*: everything from there on
was never promised to survive, and is cut (after a copy was put aside). Nothing but zeros is no tear: they
were written ahead of frames that never came, and are cut as well.
"""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec import structs

from topics.storage import fileheader
from topics.storage.fileheader import FILE_HEADER_BYTES, ForeignFile, checksum
from topics.storage.filesystem import (
    Filesystem,
    is_full,
    numbered_files,
    read_file,
    write_file_atomically,
)
from topics.storage.frame import FRAME_MAGIC_BYTES, HEADER_BYTES, Frame, Header, Kind, apart, decode_header
from topics.storage.frame_stretch import FrameStretch, StretchReader
from topics.storage.journal import JournalFile, decode_file_header, file_name, may_adopt

log = logging.getLogger("topics.recovery")

QUARANTINE = "damaged"
# Written before a cut that takes a proof along: a file header whose value is how far the journal was synced.
PROOF = "proven"
PROOF_MAGIC = b"TOPICSPR"
_APPEND, _GROUP, _KEYED, _VOID = int(Kind.APPEND), int(Kind.GROUP), int(Kind.KEYED), int(Kind.VOID)
# How much is looked at in one go to see whether there is anything.
_LOOK_BYTES = 1024 * 1024
# A pattern searches a mapped file where it lies; `bytes.find` would need a copy of it every time.
_MAGIC = re.compile(re.escape(FRAME_MAGIC_BYTES))


@dataclass(slots=True, frozen=True)
class Damage:
    """A stretch of journal that cannot be read. The header is there when it survived."""

    position: int
    end: int
    header: Header | None
    # It lies where segments may have been adopted: a few bytes may then have given out very many seqs.
    may_adopt: bool = False


@dataclass(slots=True)
class _Source:
    base: int
    data: memoryview  # the frames, without the file header
    may_adopt: bool

    @property
    def end(self) -> int:
        return self.base + len(self.data)

    def read(self, at: int) -> tuple[Frame | None, Header | None]:
        frame, header = read_frame(self.data, at, self.base)
        if header is not None and header.synced > self.base + at:
            return None, None  # no frame knows of a sync beyond itself: bytes that only look like one
        return frame, header


def read_frame(data: memoryview, at: int, base: int) -> tuple[Frame | None, Header | None]:
    """The frame at `at`; without it, at least its header if that is intact."""
    header = decode_header(data, at)
    if header is None:
        return None, None
    start = at + HEADER_BYTES
    payload = data[start : start + header.payload_length]
    # What was taken back may never have reached the disk, and its header was written once more.
    is_intact = header.kind == _VOID or checksum(payload) == header.payload_checksum
    if len(payload) != header.payload_length or not is_intact:
        return None, header
    frame = Frame(
        header.kind,
        header.flags,
        header.count,
        header.topic_id,
        header.first_seq,
        header.ts,
        header.synced,
        header.ahead_ms,
        position=base + at,
        payload=payload,
    )
    return frame, header


class JournalReader:
    """One pass over the journal of a previous process."""

    def __init__(self, fs: Filesystem, directory: str, *, start: int, proven: int) -> None:
        """`start`: first position wanted. `proven`: everything below it is known to have been written."""
        self._fs = fs
        self._directory = directory
        self._start = start
        self._proven = max(proven, self._kept_proof())
        self._sources = self._open_sources()
        self.end = self._sources[-1].end if self._sources else start
        # Where a torn tail began.
        self.cut: int | None = None
        self._is_over = False
        self.damaged_bytes = 0

    def _open_sources(self) -> list[_Source]:
        bases = numbered_files(self._fs, self._directory, file_name)
        sources = [self._open_source(base) for base in bases]
        for source, following in pairwise(sources):
            # What a failed write left behind the last frame: those addresses belong to the next file.
            source.data = source.data[: following.base - source.base]
        return sources

    def _open_source(self, base: int) -> _Source:
        with self._fs.open(self._path(base)) as file:
            data = file.map()
        # A header that is damaged or never reached the disk does no harm: the name says the same.
        if decode_file_header(data) not in (base, None):
            raise ForeignFile(f"{self._path(base)} has been renamed: its header names another position")
        return _Source(base, data[FILE_HEADER_BYTES:], may_adopt(data))

    def _path(self, base: int) -> str:
        return os.path.join(self._directory, file_name(base))

    @property
    def size(self) -> int:
        return max(self.end - self._start, 1)

    def files(self) -> list[JournalFile]:
        return [JournalFile(s.base, s.end) for s in self._sources]

    def frames(self) -> Iterator[Frame | Damage]:
        """What is there from `start` on. That the first file reaches back to it is the caller's to check."""
        for item in self.stretches(None):
            assert not isinstance(item, FrameStretch)
            yield item

    def stretches(self, border: int | None) -> Iterator[Frame | Damage | FrameStretch]:
        """The same, but for many small frames of a topic, which come together.

        None below the position `border` comes with one above it. Without one, all come by themselves.
        """
        for index, source in enumerate(self._sources):
            if source.end <= self._start:
                continue
            yield from self._gap_before(index)
            if not self._is_over:
                yield from self._frames_of(index, border)
            if self._is_over:
                return

    def _gap_before(self, index: int) -> Iterator[Damage]:
        """Whole files can be missing too."""
        source = self._sources[index]
        reached = max(self._start, self._sources[index - 1].end if index else source.base)
        if source.base <= reached:
            return
        if self._was_safe(index, 0, reached):
            yield self._damage(reached, source.base, None, may_adopt=True)
        else:
            self._cut(index - 1, len(self._sources[index - 1].data))

    def _frames_of(self, index: int, border: int | None) -> Iterator[Frame | Damage | FrameStretch]:
        source = self._sources[index]
        together = None if border is None else StretchReader(source.data, source.base, border)
        at = max(self._start - source.base, 0)
        while at < len(source.data):
            frame, header = source.read(at)
            if frame is not None:
                at += HEADER_BYTES + len(frame.payload)
                if frame.kind == _APPEND:
                    yield frame
                    last: Frame | FrameStretch = frame
                    while together is not None and (stretch := together.read(last)) is not None:
                        yield stretch
                        last, at = stretch, stretch.end - source.base
                elif frame.kind == _GROUP:
                    yield from _members(frame)
                elif frame.kind == _KEYED:
                    yield from apart(frame)
                elif frame.kind != _VOID:
                    yield frame
                continue
            position = source.base + at
            if position >= self._proven and self._has_only_zeros(index, at):
                self._cut(index, at, is_torn=False)
                return
            behind = _behind(source, at, header)
            if not self._was_safe(index, behind, position):
                self._cut(index, at)
                return
            yield self._damage(position, source.base + behind, header, may_adopt=source.may_adopt)
            at = behind

    def _damage(self, position: int, end: int, header: Header | None, *, may_adopt: bool) -> Damage:
        self.damaged_bytes += end - position
        return Damage(position, end, header, may_adopt)

    def _was_safe(self, index: int, at: int, position: int) -> bool:
        """Whether `position` had been synced, going by what is intact from `at` in file `index` on."""
        if position >= self._proven:
            # Once at most in vain: the next step is then the cut.
            self._proven = max(self._proven, self._highest_synced(index, at))
        return position < self._proven

    def _highest_synced(self, index: int, at: int) -> int:
        highest = 0
        for source in self._sources[index:]:
            for frame in _intact_frames(source, at):
                highest = max(highest, frame.synced)
            at = 0
        return highest

    def _has_only_zeros(self, index: int, at: int) -> bool:
        for source in self._sources[index:]:
            for begin in range(at, len(source.data), _LOOK_BYTES):
                if np.frombuffer(source.data[begin : begin + _LOOK_BYTES], np.uint8).any():
                    return False
            at = 0
        return True

    def _cut(self, index: int, at: int, *, is_torn: bool = True) -> None:
        source = self._sources[index]
        self._is_over, self.end = True, source.base + at
        if is_torn:
            self.cut = self.end
        self._keep_proof()
        for later in self._sources[index + 1 :]:
            if is_torn:
                self._put_aside(later, 0)
            self._fs.remove(self._path(later.base))
        # For good, before the tear is gone: a file that came back would continue a journal it is not part of.
        self._fs.sync_dir(self._directory)
        if is_torn:
            self._put_aside(source, at)
        with self._fs.open(self._path(source.base)) as file:
            file.truncate(FILE_HEADER_BYTES + at)
            file.sync()
        self._sources[index:] = [_Source(source.base, source.data[:at], source.may_adopt)]

    def _keep_proof(self) -> None:
        """What proved damage further up may fall now; no later scan may take that damage for the tear."""
        if self.damaged_bytes:
            header = fileheader.encode(PROOF_MAGIC, self._proven)
            write_file_atomically(self._fs, self._directory, PROOF, [header])

    def _kept_proof(self) -> int:
        path = os.path.join(self._directory, PROOF)
        if not self._fs.exists(path):
            return 0
        return fileheader.decode(read_file(self._fs, path), PROOF_MAGIC) or 0

    def _put_aside(self, source: _Source, at: int) -> None:
        tail = bytes(source.data[at:])
        if not tail.strip(b"\0"):
            return
        directory = os.path.join(self._directory, QUARANTINE)
        # With its checksum in the name: a second tear in the same place leaves a second file.
        name = f"{source.base + at:020d}-{checksum(tail):016x}.tail"
        try:
            self._fs.make_dirs(directory)
            write_file_atomically(self._fs, directory, name, [tail])
        except OSError as error:
            if not is_full(error):
                raise
            # Nothing in it was promised, and what was promised is to be read.
            log.error("the disk is full: %d bytes of torn journal are cut off without a copy", len(tail))


def _members(frame: Frame) -> Iterator[Frame]:
    """The frames in a group, which lie where the group lies."""
    at = 0
    while at < len(frame.payload):
        member, _ = read_frame(frame.payload, at, 0)
        assert member is not None  # the group's own checksum vouches for it
        at = member.end
        yield structs.replace(member, position=frame.position)


def _behind(source: _Source, at: int, header: Header | None) -> int:
    """Offset at which to go on behind a bad frame.

    An intact header tells where its frame ends. Looking for the next frame inside its payload instead could
    find what a client put there. Without a header, the next one that is intact has to do.
    """
    if header is not None:
        return min(at + HEADER_BYTES + header.payload_length, len(source.data))
    for found in _MAGIC.finditer(source.data, at + 1):
        if source.read(found.start())[1] is not None:
            return found.start()
    return len(source.data)


def _intact_frames(source: _Source, at: int) -> Iterator[Frame]:
    while at < len(source.data):
        frame, header = source.read(at)
        if frame is not None:
            yield frame
            at = frame.end - source.base
        else:
            at = _behind(source, at, header)

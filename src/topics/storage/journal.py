"""The append-only journal: files that together form one long address space.

    <base>.journal:  magic 8 | format u32 | mark u32 | base u64 | checksum u64 | frames …

`base` is the address of the file's first frame, so a position names a frame for ever, across rotations
and after older files were dropped. It is in the name as well: a rotten header does not displace the frames
behind it. A file is only ever extended. Only the headers of frames that have to be taken back are overwritten
(see `void_frames()`). After the last frame of the current file there may be zeros (see `ahead`).

A frame gets its header when it is written, because the header may depend on the position.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from topics.storage import fileheader
from topics.storage.ahead import Ahead
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Buffer, File, Filesystem, is_full
from topics.storage.frame import (
    HEADER_BYTES,
    FrameDraft,
    Header,
    Kind,
    decode_header,
    encode_frames,
    encode_header,
)

MAGIC = b"TOPICSJL"
# The mark of a file that may hold ADOPT frames. In other files, few bytes cannot have used very many seqs.
ADOPTING = 1
SUFFIX = ".journal"
ROTATE_BYTES = 64 * 1024 * 1024


def file_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def encode_file_header(base: int, mark: int = 0) -> bytes:
    return fileheader.encode(MAGIC, base, mark=mark)


def decode_file_header(data: bytes | memoryview) -> int | None:
    """The base address, or None when these bytes are not an intact header."""
    return fileheader.decode(data, MAGIC)


def may_adopt(data: bytes | memoryview) -> bool:
    """Tell whether ADOPT frames may follow this header; they may follow a damaged one."""
    return decode_file_header(data) is None or fileheader.mark_of(data) == ADOPTING


@dataclass(slots=True)
class JournalFile:
    base: int
    end: int


@dataclass(slots=True)
class SyncTicket:
    """One sync of everything written so far; `run` may happen on another thread."""

    files: list[File]
    directory: str | None
    upto: int
    fs: Filesystem
    # Where files end in which the journal does not go on: what was written ahead is cut off.
    ends: dict[File, int]

    def run(self) -> None:
        for file in self.files:
            if file in self.ends:
                file.truncate(self.ends[file])
            file.sync()
        if self.directory is not None:
            self.fs.sync_dir(self.directory)


@dataclass(slots=True)
class PendingWrite:
    """Frames that have their position in the journal; `run` may happen on another thread."""

    file: File
    buffers: list[Buffer]
    offset: int

    def run(self) -> int:
        return self.file.write(self.buffers, self.offset)


class Journal:
    """Writes frames and knows how far they are on disk. One owner, no locks."""

    def __init__(
        self,
        fs: Filesystem,
        directory: str,
        files: list[JournalFile],
        position: int,
        *,
        doubtful_from: int | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        """`files`: what an earlier process left behind; `position`: where this one goes on.

        `doubtful_from`: where the page cache may show frames of which the disk knows nothing.
        """
        self._fs = fs
        self._directory = directory
        self._ahead = ahead or Ahead(fs, directory)
        self._ahead.forget_left()
        # How long the current file was when it was begun, if it was written ahead.
        self._begun_size = 0
        self._ends: dict[File, int] = {}
        # The current file may hold ADOPT frames.
        self.may_adopt = False
        self.files = files
        self.position = position
        # A backup copies the journal from here on, so it stays.
        self.kept_from: int | None = None
        self._sync_left_behind(position if doubtful_from is None else doubtful_from)
        self.synced = position
        self._unsynced: list[File] = []
        self._new_file = False
        self._file = self._first_file()

    def _sync_left_behind(self, doubtful_from: int) -> None:
        """A killed process leaves frames that only the page cache has; `synced` must not vouch for those.

        If a sync of them has failed before, another one may succeed without writing them: to the kernel they
        are clean. Written once more, they are not.
        """
        for left in self.files:
            with self._fs.open(self._path(left.base)) as file:
                if left.end > doubtful_from:
                    at = FILE_HEADER_BYTES + doubtful_from - left.base if doubtful_from > left.base else 0
                    file.write([file.read(file.size() - at, at)], at)
                file.sync()
        if self.files:
            # The name of the last file may be as new as its frames.
            self._fs.sync_dir(self._directory)

    def _path(self, base: int) -> str:
        return os.path.join(self._directory, file_name(base))

    def _first_file(self) -> File:
        """A process begins a file of its own, if there is room for one; otherwise it goes on in the last."""
        try:
            return self._start_file()
        except OSError as error:
            # One that an earlier process had begun, and never written to, was replaced by what is gone now.
            self.files = [file for file in self.files if file.base < self.position]
            if not is_full(error) or not self.files or self.files[-1].end != self.position:
                raise
        self._new_file = True
        file = self._fs.open(self._path(self.files[-1].base))
        self._unsynced.append(file)
        return file

    def _start_file(self, mark: int = 0) -> File:
        path = self._path(self.position)
        file, size = self._ahead.take(path) or (self._fs.create(path), 0)
        try:
            file.write([encode_file_header(self.position, mark)], 0)
        except OSError:
            file.close()
            self._forget_begun_file()
            raise
        if self.files and self.files[-1].base == self.position:
            self.files.pop()  # begun by an earlier process and never written to: this one replaced it
        self.files.append(JournalFile(self.position, self.position))
        self._unsynced.append(file)
        self._new_file = True
        self._begun_size = size
        self.may_adopt = mark == ADOPTING
        return file

    def _forget_begun_file(self) -> None:
        """The last file goes on: one that began where it goes on would be taken for the rest of it."""
        self._fs.remove(self._path(self.position))
        try:
            self._fs.sync_dir(self._directory)
        except OSError as error:
            raise OSError(errno.EIO, f"a journal file that was begun cannot be removed: {error}") from error

    def write(self, frames: list[FrameDraft]) -> None:
        """Hand frames to the operating system. Raises OSError when it does not take all of them."""
        current = self.files[-1]
        offset = FILE_HEADER_BYTES + self.position - current.base
        self.position += self._file.write(encode_frames(frames, self.position, self.synced), offset)
        current.end = self.position

    def begin_write(self, frames: list[FrameDraft]) -> PendingWrite:
        """Prepare a write that may run on another thread.

        The frames get their headers for the current end of the journal. Until `finish_write`, or after a
        failure `cut_back`, nothing else may be written.
        """
        buffers = encode_frames(frames, self.position, self.synced)
        return PendingWrite(self._file, buffers, self._current_size)

    def finish_write(self, written: int) -> None:
        self.position += written
        self.files[-1].end = self.position

    def cut_back(self) -> None:
        """Remove what a refused write left after the last frame. On disk when this returns."""
        self._file.truncate(self._current_size)
        self._begun_size = 0
        self._file.sync()

    def unsynced_files(self) -> list[tuple[int, File]]:
        """The files that hold whatever no sync has covered, each with its base."""
        return [(int(os.path.basename(file.path).partition(".")[0]), file) for file in self._unsynced]

    @property
    def current_bytes(self) -> int:
        return self.position - self.files[-1].base

    @property
    def _current_size(self) -> int:
        """Where the next frame goes in the current file."""
        return FILE_HEADER_BYTES + self.position - self.files[-1].base

    @property
    def is_ahead(self) -> bool:
        """The current file was written ahead."""
        return bool(self._begun_size)

    @property
    def ahead_bytes(self) -> int:
        """What is left of it."""
        return max(self._begun_size - self._current_size, 0)

    def rotate(self, *, to_adopt: bool = False) -> None:
        """Go on in a new file. The old one stays open until the next sync has covered it."""
        if self.current_bytes:
            left, size, is_ahead = self._file, self._current_size, self.ahead_bytes > 0
            self._file = self._start_file(ADOPTING if to_adopt else 0)
            if is_ahead:
                self._ends[left] = size

    def begin_sync(self) -> SyncTicket:
        directory = self._directory if self._new_file else None
        return SyncTicket(list(self._unsynced), directory, self.position, self._fs, dict(self._ends))

    def finish_sync(self, ticket: SyncTicket) -> None:
        self.synced = max(self.synced, ticket.upto)
        for file in ticket.files:
            if file is not self._file and file in self._unsynced:
                self._unsynced.remove(file)
                self._ends.pop(file, None)
                file.close()
        if ticket.directory is not None and ticket.files[-1] is self._file:
            self._new_file = False

    def current_file(self) -> File:
        return self._file

    def is_in_place(self) -> bool:
        """Whether the file that is written has its name still: without it, no start would find it."""
        return self._fs.is_at(self._file.fileno(), self._path(self.files[-1].base))

    @property
    def only_current_unsynced(self) -> bool:
        """True when one sync of the current descriptor covers everything."""
        return len(self._unsynced) == 1 and not self._new_file

    def retained_bytes(self) -> int:
        return self.position - self.files[0].base

    def leave_behind(self, position: int) -> list[str]:
        """Paths of the files whose every frame lies below `position`: to be removed, no snapshot needs them.

        The current file always stays.
        """
        if self.kept_from is not None:
            position = min(position, self.kept_from)
        gone = [self._path(file.base) for file in self.files[:-1] if file.end <= position]
        self.files = [file for file in self.files[:-1] if file.end > position] + self.files[-1:]
        return gone

    def close(self, *, clean: bool = False) -> None:
        """`clean`: all of it is synced, and nothing is left that was written ahead."""
        with suppress(OSError):  # the next start does it
            if clean and self.ahead_bytes:
                self._file.truncate(self._current_size)
                self._file.sync()
            self._ahead.drop()
        for file in self._unsynced:
            file.close()
        self._unsynced = []


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
    """Take back frames in these ranges of positions, none of which a sync has covered.

    Other frames may follow them, so the journal cannot be cut off there. Their headers become headers of VOID
    frames, which mean nothing. The payload stays and is not read again: it may never have reached the disk.

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

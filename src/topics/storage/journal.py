"""The append-only journal: files that together form one long address space.

    <base>.journal:  magic 8 | version u32 | 0 u32 | base u64 | checksum u64 | frames …

`base` is the address of the file's first frame, so a position names a frame for ever, across rotations
and after older files were dropped. It is in the name as well: a rotten header does not displace the frames
behind it. A file is only ever extended; nothing in it is rewritten, but the headers of frames that have to be
taken back (see `void_frames`). Behind the last frame of the current one there may be zeros (see `ahead`).
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, cast

from xxhash import xxh3_64, xxh3_64_intdigest

from topics.storage import fileheader
from topics.storage.ahead import Ahead
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Buffer, File, Filesystem, is_full
from topics.storage.frame import FIELDS, FRAME_MAGIC, PREFIX, U32

MAGIC = b"TOPICSJL"
VERSION = 1
# Of a file that may hold ADOPT frames. A release that does not know them would take their segments for
# orphans, and remove those before it comes to the frame: it refuses the file, and removes nothing.
ADOPTING_VERSION = 2
SUFFIX = ".journal"
SMALL_PAYLOAD_BYTES = 4096
ROTATE_BYTES = 64 * 1024 * 1024
# Of a frame: in one piece, or in several that are not worth a copy.
Payload: TypeAlias = Buffer | tuple[Buffer, ...]
# Every frame asks for them.
_pack_fields, _pack_prefix = FIELDS.pack, PREFIX.pack


def file_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def encode_file_header(base: int, version: int = VERSION) -> bytes:
    return fileheader.encode(MAGIC, version, base)


def decode_file_header(data: bytes | memoryview) -> int | None:
    """The base address, or None when these bytes are not an intact header."""
    return fileheader.decode(data, MAGIC, VERSION, newest=ADOPTING_VERSION)


def may_adopt(data: bytes | memoryview) -> bool:
    """Whether ADOPT frames may be behind this header; of one that is damaged, nobody knows."""
    return decode_file_header(data) is None or fileheader.version_of(data) == ADOPTING_VERSION


def encode_header(
    kind: int,
    flags: int,
    count: int,
    topic_id: int,
    first_seq: int,
    ts: int,
    synced: int,
    payload_checksum: int,
    payload_length: int,
    ahead_ms: int = 0,
) -> bytes:
    fields = _pack_fields(
        payload_checksum,
        payload_length,
        kind,
        flags,
        ahead_ms >> 32,
        count,
        ahead_ms & U32,
        topic_id,
        first_seq,
        ts,
        synced,
    )
    return _pack_prefix(FRAME_MAGIC, xxh3_64_intdigest(fields) & U32) + fields


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
    """Frames that have their place in the journal; `run` may happen on another thread."""

    file: File
    buffers: list[bytes]
    offset: int

    def run(self) -> int:
        return self.file.write(self.buffers, self.offset)


class Journal:
    """Writes frames and knows how far they are on disk. One owner, no locks."""

    # What the accelerator looks into.
    __slots__ = ("__dict__", "_file", "files", "position", "synced")

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

    def _start_file(self, version: int = VERSION) -> File:
        path = self._path(self.position)
        file, size = self._ahead.take(path) or (self._fs.create(path), 0)
        try:
            file.write([encode_file_header(self.position, version)], 0)
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
        self.may_adopt = version == ADOPTING_VERSION
        return file

    def _forget_begun_file(self) -> None:
        """The last file goes on: one that began where it goes on would be taken for the rest of it."""
        self._fs.remove(self._path(self.position))
        try:
            self._fs.sync_dir(self._directory)
        except OSError as error:
            raise OSError(errno.EIO, f"a journal file that was begun cannot be removed: {error}") from error

    def frame(
        self,
        kind: int,
        payload: Payload,
        topic_id: int = 0,
        first_seq: int = 0,
        count: int = 0,
        ts: int = 0,
        flags: int = 0,
        ahead_ms: int = 0,
    ) -> list[bytes]:
        """The buffers of a frame, ready for `write`."""
        if isinstance(payload, tuple):
            return self.frame_of(kind, payload, topic_id, first_seq, count, ts, flags, ahead_ms)
        size = len(payload)
        digest = xxh3_64_intdigest(payload)
        header = encode_header(
            kind, flags, count, topic_id, first_seq, ts, self.synced, digest, size, ahead_ms
        )
        # Copying a little costs less than another buffer in the vectored write.
        return [header + payload] if size < SMALL_PAYLOAD_BYTES else cast("list[bytes]", [header, payload])

    def frame_of(
        self,
        kind: int,
        parts: Sequence[Buffer],
        topic_id: int = 0,
        first_seq: int = 0,
        count: int = 0,
        ts: int = 0,
        flags: int = 0,
        ahead_ms: int = 0,
    ) -> list[bytes]:
        """A frame whose payload is all of these together. It may be large, so it is not copied into one."""
        digest = xxh3_64()
        for part in parts:
            digest.update(part)
        size = sum(map(len, parts))
        checksum = digest.intdigest()
        header = encode_header(
            kind, flags, count, topic_id, first_seq, ts, self.synced, checksum, size, ahead_ms
        )
        # Whatever they are, they are only written.
        return cast("list[bytes]", [header, *parts])

    def write(self, buffers: list[bytes]) -> None:
        """Hand frames to the operating system. Raises OSError when it will not take them whole."""
        self.finish_write(self._file.write(buffers, self._current_size))

    def begin_write(self, buffers: list[bytes]) -> PendingWrite:
        """The same in two steps. Between them nothing else is written, and the end stays."""
        return PendingWrite(self._file, buffers, self._current_size)

    def finish_write(self, written: int) -> None:
        self.position += written
        self.files[-1].end = self.position

    def cut_back(self) -> None:
        """A write was refused: behind the last frame there is nothing, and that is so on disk."""
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
            self._file = self._start_file(ADOPTING_VERSION if to_adopt else VERSION)
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

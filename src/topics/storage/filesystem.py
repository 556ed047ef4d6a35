"""The disk seam: the only module that touches files.

Everything above talks to `Filesystem` and `File`; a simulated disk implements the same two classes.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self, TypeAlias

from topics.core import Explained

# What files are written from.
Buffer: TypeAlias = bytes | bytearray | memoryview
# Linux refuses more buffers than this in one vectored write.
IOV_MAX = 1024
# Whole files are written in pieces, with a blink in between. Otherwise the kernel copies several milliseconds
# before it lets another thread have the processor, and a reader's slowest answers show it. Behind each piece
# and each blink a busy loop is asked for the interpreter, which costs both sides: with pieces of a quarter of
# this, a twentieth of all that batches take.
PIECE_BYTES = 512 * 1024
BLINK_S = 1e-6
# What a file system says to a lock that it does not have.
_NO_SUCH_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS}
# What a file is called until it is complete; leftovers of a crash are overwritten or swept by name.
TEMPORARY = ".tmp"
# That of the next journal file, until it is used.
AHEAD = "ahead" + TEMPORARY


# What a file is given while it is filled with nothing, where the file system cannot do that by itself.
_ZEROS_BYTES = 1024 * 1024


class LockHeld(Explained):
    """Another live process owns the data directory."""

    advice = "stop the server first"


class Room(NamedTuple):
    """How much a file system can hold."""

    # What a program like this one may still write, as `df` tells it.
    free_bytes: int
    # What nothing is written to. Some of it may be kept for the superuser.
    unused_bytes: int
    size_bytes: int


def is_full(error: BaseException | None) -> bool:
    """There was no room, and nothing else is wrong with the disk."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


# No file has this number.
_CLOSED = -1


class File:
    """An open file addressed by position; there is no implicit cursor."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def fileno(self) -> int:
        return self._fd

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after another at `position`; returns the bytes written."""
        if len(buffers) == 1:
            data = buffers[0]
            written = os.pwrite(self._fd, data, position)
            if written < len(data):
                self._write_fully(memoryview(data)[written:], position + written)
            return len(data)
        if len(buffers) <= IOV_MAX:
            return self._write_group(buffers, position)
        total = 0
        for start in range(0, len(buffers), IOV_MAX):
            total += self._write_group(buffers[start : start + IOV_MAX], position + total)
        return total

    def _write_group(self, buffers: Sequence[Buffer], position: int) -> int:
        """Of as many as the system takes at once."""
        expected = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, position)
        if written != expected:
            self._write_fully(memoryview(b"".join(buffers))[written:], position + written)
        return expected

    def _write_fully(self, data: Buffer, position: int) -> int:
        size = len(data)
        written = os.pwrite(self._fd, data, position)
        while written < size:
            written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        return size

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._fd, size, position)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def forget_cached(self) -> None:
        """The next read gets what the medium holds; only what is synced can be forgotten."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Make it so long, and have the room for that be really taken."""
        start = self.size()
        try:
            os.posix_fallocate(self._fd, start, size - start)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            zeros = bytes(_ZEROS_BYTES)
            for at in range(start, size, _ZEROS_BYTES):
                self._write_fully(memoryview(zeros)[: size - at], at)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def map(self) -> memoryview:
        """A read-only view of the whole file; it lives as long as anything refers to it."""
        size = self.size()
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        if self._fd != _CLOSED:
            os.close(self._fd)
            self._fd = _CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unload_pages(view: memoryview, start: int, stop: int) -> None:
    """This part of a mapped file is not used for a while, and need not be in this process's memory."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        first = start - start % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, stop - first)


class SharedPage:
    """A small mapped file whose content outlives a killed process without a system call per update."""

    def __init__(self, path: str, size: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(fd).st_size < size:
                # Really written: touching a page the disk has no room for would kill the process.
                os.posix_fallocate(fd, 0, size)
            self.view = mmap.mmap(fd, size)
        finally:
            os.close(fd)

    def sync(self) -> None:
        self.view.flush()

    def close(self) -> None:
        self.view.close()


class Filesystem:
    """The real disk."""

    def make_dirs(self, path: str) -> None:
        """Create what is missing. A directory survives a power loss only once its parent is synced."""
        parent = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            # The process that made it may have been killed before that. Not all parents are ours to open.
            with contextlib.suppress(PermissionError):
                self.sync_dir(parent)
            return
        self.make_dirs(parent)
        os.mkdir(path)
        self.sync_dir(parent)

    def create(self, path: str) -> File:
        return File(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), path)

    def open(self, path: str) -> File:
        return File(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def open_to_read(self, path: str) -> File:
        return File(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_dir(self, path: str) -> None:
        """An empty one."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def shared_page(self, path: str, size: int) -> SharedPage:
        return SharedPage(path, size)

    def room(self, path: str) -> Room:
        """On the file system where this lies."""
        there = os.statvfs(path)
        block = there.f_frsize
        return Room(there.f_bavail * block, there.f_bfree * block, there.f_blocks * block)

    def give_way(self) -> None:
        """Other threads that wait for the processor go first; for work in the background."""
        time.sleep(BLINK_S)

    def boot_id(self) -> bytes:
        """Changes when the machine restarts: tells a killed process from a lost page cache."""
        with open("/proc/sys/kernel/random/boot_id", "rb") as source:
            return source.read().strip().replace(b"-", b"")[:32]

    def lock(self, path: str) -> int:
        """An advisory lock that vanishes with the process; returns the descriptor that holds it."""
        return locked(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), path)

    def lock_dir(self, path: str) -> int:
        """The same on a directory itself, for which no file is needed.

        A few file systems have no such locks. The descriptor is of use all the same: see `is_at`.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            return locked(os.open(path, flags), path)
        except OSError as error:
            if error.errno not in _NO_SUCH_LOCKS:
                raise
        return os.open(path, flags)

    def unlock(self, fd: int) -> None:
        os.close(fd)

    def is_at(self, fd: int, path: str) -> bool:
        """Whether the path still leads to what the descriptor holds."""
        try:
            there = os.stat(path)
        except OSError as error:
            # Any other error says that looking failed, not that something else is there.
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
        return os.path.samestat(there, os.fstat(fd))

    def is_same(self, path: str, other: str) -> bool:
        """Whether two paths lead to one directory; False as well where there is none."""
        try:
            return os.path.samefile(path, other)
        except OSError:
            return False

    def new_identity(self) -> str:
        """Like no other: 32 hexadecimal digits."""
        return os.urandom(16).hex()


def locked(fd: int, path: str) -> int:
    """The descriptor with an exclusive lock on it; closed where that cannot be had."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise LockHeld(f"another process holds {path}") from error
    except OSError:
        os.close(fd)
        raise
    return fd


def replace_file(fs: Filesystem, path: str, parts: Sequence[Buffer]) -> None:
    """Temporary file, sync, rename: the name shows the whole content or what it showed before.

    The rename itself is only durable once the caller has synced the directory.
    """
    temporary = path + TEMPORARY
    file = fs.create(temporary)
    try:
        at = 0
        for piece in in_pieces(parts):
            if at:
                fs.give_way()
            try:
                at += file.write(piece, at)
            finally:
                # An error remembers them, and whatever it remembers could not grow as long as it is known.
                for view in piece:
                    view.release()
        file.sync()
    except OSError:
        # A full disk stays full as long as the half-written file lies around.
        fs.remove(temporary)
        raise
    finally:
        file.close()
    fs.rename(temporary, path)


def in_pieces(buffers: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """The same bytes in the same order, `PIECE_BYTES` at a time."""
    piece: list[memoryview] = []
    room = PIECE_BYTES
    for buffer in buffers:
        rest = memoryview(buffer)
        while len(rest) > room:
            yield [*piece, rest[:room]]
            piece, rest, room = [], rest[room:], PIECE_BYTES
        piece.append(rest)
        room -= len(rest)
    if piece:
        yield piece


def write_file_atomically(fs: Filesystem, directory: str, name: str, parts: Sequence[Buffer]) -> None:
    """`replace_file` and directory sync: durable when it returns."""
    replace_file(fs, os.path.join(directory, name), parts)
    fs.sync_dir(directory)


def read_file(fs: Filesystem, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read(file.size(), 0)


def numbered_files(fs: Filesystem, directory: str, file_name: Callable[[int], str]) -> list[int]:
    """Numbers of the files `file_name` could have named, ascending; whatever else lies there is not ours."""
    numbers = []
    for name in fs.list(directory):
        stem = name.partition(".")[0]
        if stem.isascii() and stem.isdigit() and file_name(int(stem)) == name:
            numbers.append(int(stem))
    return sorted(numbers)


def unfinished_files(fs: Filesystem, directory: str) -> list[str]:
    """Names of files that a crash left before they were complete.

    Not of the next journal file, which is written ahead: that is this process's own, and in use.
    """
    return [name for name in fs.list(directory) if name.endswith(TEMPORARY) and name != AHEAD]


NO_LOCK = -1


class UntouchedFile(File):
    __slots__ = ()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        return sum(map(len, buffers))

    def sync(self) -> None:
        return None

    def truncate(self, size: int) -> None:
        return None


class CopiedPage(SharedPage):
    """The content of a mapped file, in memory of its own."""

    def __init__(self, path: str, size: int) -> None:
        content = b""
        if os.path.exists(path):
            with open(path, "rb") as source:
                content = source.read(size)
        self.view = bytearray(content.ljust(size, b"\0"))  # type: ignore[assignment]

    def sync(self) -> None:
        return None

    def close(self) -> None:
        return None


class UntouchedDisk(Filesystem):
    """A disk to read only. Changes are accepted and go nowhere, so that `topics check` can run a recovery."""

    def make_dirs(self, path: str) -> None:
        return None

    def create(self, path: str) -> File:
        return File(os.memfd_create(os.path.basename(path)), path)

    def open(self, path: str) -> File:
        return UntouchedFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def rename(self, source: str, target: str) -> None:
        return None

    def remove(self, path: str) -> None:
        return None

    def remove_dir(self, path: str) -> None:
        return None

    def sync_dir(self, path: str) -> None:
        return None

    def shared_page(self, path: str, size: int) -> SharedPage:
        return CopiedPage(path, size)

    def lock(self, path: str) -> int:
        """The real lock, if there is a file for it: without one, no server has ever run here."""
        if not os.path.exists(path):
            return NO_LOCK
        return locked(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def lock_dir(self, path: str) -> int:
        return super().lock_dir(path) if os.path.isdir(path) else NO_LOCK

    def unlock(self, fd: int) -> None:
        if fd != NO_LOCK:
            os.close(fd)

    def is_at(self, fd: int, path: str) -> bool:
        return fd == NO_LOCK or super().is_at(fd, path)

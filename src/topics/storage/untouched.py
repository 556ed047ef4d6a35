"""A disk to look at and nothing else: changes are accepted and go nowhere.

With it, recovery can be run on a directory exactly as a server would run it, and nothing in there changes.
"""

import os
from collections.abc import Sequence

from topics.storage.filesystem import Buffer, File, Filesystem, SharedPage, locked

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

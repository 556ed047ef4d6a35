"""What an engine holds in its hands of a simulated disk: open files and the shared page."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.crash.medium import Node, Page
from topics.storage.filesystem import File, SharedPage

if TYPE_CHECKING:
    from tests.crash.disk import SimulatedDisk


class SimulatedFile(File):
    __slots__ = ("_disk", "_node")

    def __init__(self, disk: SimulatedDisk, node: Node, path: str) -> None:
        super().__init__(-1, path)
        self._disk = disk
        self._node = node

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def write(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        disk = self._disk
        disk.alive()
        went_to = None
        if disk.faults is not None:
            taken = disk.faults.on_write(self.path, len(data))
            if taken is not None:
                self._node.change(position, data[:taken])
                disk.mutated()
                raise OSError(errno.ENOSPC, "No space left on device", self.path)
            went_to = disk.misdirection(self._node, self.path, len(data))
        fitting = self._fitting(position, len(data))
        if fitting < len(data):
            if fitting:
                self._node.change(position, data[:fitting])
                disk.mutated()
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        self._node.change(position, data, went_to)
        disk.written.add(self.path)
        disk.mutated()
        return len(data)

    def _fitting(self, position: int, size: int) -> int:
        """How much of a write the disk has room for."""
        if self._disk.capacity is None:
            return size
        return min(size, max(self._node.size - position, 0) + self._disk.free_bytes())

    def allocate(self, size: int) -> None:
        start = self._node.size
        fitting = self._fitting(start, size - start)
        self.truncate(start + fitting)
        if fitting < size - start:
            raise OSError(errno.ENOSPC, "No space left on device", self.path)

    def read(self, size: int, position: int) -> bytes:
        self._disk.reads(self.path)
        return bytes(self._node.buffer[position : min(position + size, self._node.size)])

    def sync(self) -> None:
        disk = self._disk
        disk.alive()
        if disk.faults is not None and disk.faults.fails_sync(self.path):
            self._node.lose_dirty(disk.faults.rng)
            raise OSError(errno.EIO, "Input/output error", self.path)
        self._node.sync()
        disk.mutated()

    def forget_cached(self) -> None:
        self._disk.alive()
        if not self._node.changes:
            self._node.apply_patches()

    def truncate(self, size: int) -> None:
        self._disk.alive()
        if self._disk.faults is not None:
            self._disk.faults.on_write(self.path, 0)
        self._node.change_size(size)
        self._disk.mutated()

    def size(self) -> int:
        return self._node.size

    def map(self) -> memoryview:
        """A failing page under a mapping would kill the process; here the mapping itself is refused."""
        self._disk.reads(self.path)
        return memoryview(self._node.buffer)[: self._node.size].toreadonly()

    def close(self) -> None:
        return None


class SimulatedPage(SharedPage):
    def __init__(self, disk: SimulatedDisk, page: Page, path: str) -> None:
        self._disk = disk
        self._page = page
        self._path = path
        self.view = page.current  # type: ignore[assignment]  # as writable and as long as a mapping

    def sync(self) -> None:
        self._disk.alive()
        if self._disk.faults is not None and self._disk.faults.fails_sync(self._path):
            raise OSError(errno.EIO, "Input/output error", self._path)
        self._page.sync()
        self._disk.mutated()

    def close(self) -> None:
        return None

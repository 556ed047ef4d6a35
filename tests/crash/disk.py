"""A disk in memory that knows what is safe: everything else may be gone, torn or out of order after a crash.

`crash` is a power loss: what no sync has covered is left to chance, and the boot id changes. `kill` is the
end of the process alone: nothing that was written is lost. Every change of the disk is counted, so that a
test can stop the machine right behind any of them.
"""

from __future__ import annotations

import errno
import os
import random

from tests.crash.faults import FaultPlan
from tests.crash.handles import SimulatedFile, SimulatedPage
from tests.crash.medium import Directory, Entry, Node, Page
from topics.storage.filesystem import File, Filesystem, LockHeld, Room, SharedPage


class Crash(BaseException):
    """The machine stops here. Not an `Exception`: nobody is meant to handle it."""


# Of a disk whose room does not matter; and of one that is full, of other programs' files for the most part.
SIZE = 1 << 40
SMALL_SIZE = 1 << 24


class SimulatedDisk(Filesystem):
    def __init__(self) -> None:
        self.directories: dict[str, Directory] = {"/": Directory(is_durable=True)}
        self.faults: FaultPlan | None = None
        # Called before something is written.
        self.mutations = 0
        # Paths that were written to, renamed to or created; whoever wants to know clears it first.
        self.written: set[str] = set()
        # How much it holds, if that is little.
        self.capacity: int | None = None
        # Stop behind this many mutations.
        self.crash_at = 0
        self.restarts = 0
        self._boot = 1
        self._is_dead = False
        self._locks: dict[int, str] = {}
        self._last_lock = 0
        self._pages: list[Page] = []

    # --- the machine ------------------------------------------------------------------------------------

    def alive(self) -> None:
        if self._is_dead:
            raise Crash

    def mutated(self) -> None:
        """Something changed. After the one at which the machine stops, nothing changes any more."""
        if self._is_dead:
            raise Crash
        self.mutations += 1
        for page in self._pages:
            page.note()
        if self.mutations == self.crash_at:
            self.stop()
            raise Crash

    def stop(self) -> None:
        """From now on the disk takes nothing more from this process."""
        self._is_dead = True
        for page in self._pages:
            page.current = bytearray(page.current)  # what the process still stores is not seen any more

    def _restart(self) -> None:
        if not self._is_dead:
            self.stop()
        self._is_dead = False
        self.restarts += 1
        self.faults = None
        self.crash_at = 0
        self._locks.clear()
        self._pages.clear()

    def kill(self) -> None:
        """The process is gone, and the page cache is still there."""
        self._restart()

    def write_back(self) -> None:
        """As the kernel does now and then: everything that was written reaches the medium."""
        for directory in self.directories.values():
            directory.sync()
            directory.is_durable = True
        for node in self._nodes():
            if isinstance(node, Node):
                node.sync()

    def crash(self, rng: random.Random) -> None:
        """The power went."""
        self._restart()
        self._boot += 1
        for directory in self.directories.values():
            directory.lose_power(rng)
        nodes = self._nodes()
        for node in nodes:
            node.lose_power(rng)
        for node in nodes:
            if isinstance(node, Node):
                node.apply_patches()
        for path in [path for path in self.directories if not self._is_durable(path)]:
            del self.directories[path]

    def _is_durable(self, path: str) -> bool:
        while path != "/":
            if path not in self.directories or not self.directories[path].is_durable:
                return False
            path = os.path.dirname(path)
        return True

    def _nodes(self) -> list[Node | Page]:
        found: dict[int, Node | Page] = {}
        for directory in self.directories.values():
            for node in directory.names.values():
                found[id(node)] = node
        return list(found.values())

    def clone(self) -> SimulatedDisk:
        """The same disk once more, to be treated differently. Nothing may be open on it."""
        copy = SimulatedDisk()
        copy._boot, copy.restarts = self._boot, self.restarts
        copy.capacity = self.capacity
        nodes: dict[int, Node | Page] = {}

        def cloned(node: Node | Page) -> Node | Page:
            if id(node) not in nodes:
                nodes[id(node)] = node.clone()
            return nodes[id(node)]

        for path, directory in self.directories.items():
            twin = copy.directories[path] = Directory(is_durable=directory.is_durable)
            twin.names = {name: cloned(node) for name, node in directory.names.items()}
            twin.durable = {name: cloned(node) for name, node in directory.durable.items()}
            twin.changes = [
                Entry(entry.name, None if entry.node is None else cloned(entry.node), entry.source)
                for entry in directory.changes
            ]
        return copy

    def contents(self) -> dict[str, bytes]:
        """Every file as a program sees it."""
        return {
            os.path.join(path, name): node.content()
            for path, directory in sorted(self.directories.items())
            for name, node in sorted(directory.names.items())
        }

    # --- room -------------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        return sum(node.size for node in self._nodes() if isinstance(node, Node))

    def free_bytes(self) -> int:
        return SIZE if self.capacity is None else max(self.capacity - self.used_bytes(), 0)

    def fill(self, leaving: int = 0) -> None:
        """Other programs have written all but so much."""
        self.capacity = self.used_bytes() + leaving

    # --- faults -----------------------------------------------------------------------------------------

    def reads(self, path: str) -> None:
        self.alive()
        if self.faults is not None:
            self.faults.on_read(path)

    def misdirection(self, node: Node, path: str, size: int) -> tuple[Node, int] | None:
        """Where a write goes that does not go where it should."""
        assert self.faults is not None
        return self.faults.misdirect(node, path, size, [n for n in self._nodes() if isinstance(n, Node)])

    def rot(self, path: str, rng: random.Random, flips: int = 1) -> None:
        """Bits of a file nobody has open turn over."""
        node = self._node(path)
        size = len(node.content())
        for _ in range(flips if size else 0):
            target = node.current if isinstance(node, Page) else node.buffer
            target[rng.randrange(size)] ^= 1 << rng.randrange(8)
        if isinstance(node, Page):
            node.durable = bytes(node.current)

    # --- Filesystem -------------------------------------------------------------------------------------

    def _directory(self, path: str) -> Directory:
        directory = self.directories.get(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return directory

    def _node(self, path: str) -> Node | Page:
        parent, name = os.path.split(path)
        node = self._directory(parent).names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def make_dirs(self, path: str) -> None:
        parent = os.path.dirname(path)
        if path in self.directories:
            self.sync_dir(parent)
            return
        self.make_dirs(parent)
        self.alive()
        self.directories[path] = Directory(is_durable=False)
        self.mutated()
        self.sync_dir(parent)

    def create(self, path: str) -> File:
        self.alive()
        if self.faults is not None and self.faults.on_write(path, 0) is not None:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        parent, name = os.path.split(path)
        directory = self._directory(parent)
        node = directory.names.get(name)
        if isinstance(node, Node):
            node.change_size(0)
        else:
            node = Node()
            directory.change(Entry(name, node))
        self.written.add(path)
        self.mutated()
        return SimulatedFile(self, node, path)

    def open(self, path: str) -> File:
        node = self._node(path)
        self.reads(path)
        assert isinstance(node, Node)
        return SimulatedFile(self, node, path)

    def exists(self, path: str) -> bool:
        parent, name = os.path.split(path)
        return path in self.directories or (
            parent in self.directories and name in self.directories[parent].names
        )

    def list(self, path: str) -> list[str]:
        directory = self.directories.get(path)
        if directory is None:
            return []
        inner = [os.path.basename(each) for each in self.directories if os.path.dirname(each) == path != each]
        return sorted([*directory.names, *inner])

    def rename(self, source: str, target: str) -> None:
        self.alive()
        if self.faults is not None:
            self.faults.on_write(target, 0)
        parent, name = os.path.split(target)
        assert os.path.dirname(source) == parent, "only renames within a directory are simulated"
        self._directory(parent).change(Entry(name, self._node(source), os.path.basename(source)))
        self.written.add(target)
        self.mutated()

    def remove(self, path: str) -> None:
        self.alive()
        parent, name = os.path.split(path)
        directory = self.directories.get(parent)
        if directory is not None and name in directory.names:
            directory.change(Entry(name, None))
            self.mutated()

    def sync_dir(self, path: str) -> None:
        self.alive()
        if self.faults is not None and self.faults.fails_sync(path):
            raise OSError(errno.EIO, "Input/output error", path)
        self._directory(path).sync()
        for child, directory in self.directories.items():
            if os.path.dirname(child) == path:
                directory.is_durable = True
        self.mutated()

    def shared_page(self, path: str, size: int) -> SharedPage:
        self.alive()
        parent, name = os.path.split(path)
        directory = self._directory(parent)
        page = directory.names.get(name)
        if not isinstance(page, Page):
            page = Page(size)
            directory.change(Entry(name, page))
            self.mutated()
        self._pages.append(page)
        return SimulatedPage(self, page, path)

    def room(self, path: str) -> Room:
        free = self.free_bytes()
        return Room(free, free, SIZE if self.capacity is None else SMALL_SIZE)

    def boot_id(self) -> bytes:
        return b"boot-%d" % self._boot

    def lock(self, path: str) -> int:
        parent, name = os.path.split(path)
        if path not in self.directories and name not in self._directory(parent).names:
            self.create(path)
        if path in self._locks.values():
            raise LockHeld(f"another process holds {path}")
        self._last_lock += 1
        self._locks[self._last_lock] = path
        return self._last_lock

    def lock_dir(self, path: str) -> int:
        self._directory(path)
        return self.lock(path)

    def unlock(self, fd: int) -> None:
        del self._locks[fd]

    def is_at(self, fd: int, path: str) -> bool:
        return self._locks[fd] == path and self.exists(path)

    def is_same(self, path: str, other: str) -> bool:
        return path == other and path in self.directories

    def new_identity(self) -> str:
        """Another one after every restart, and the same in every run of a test."""
        return f"{self.restarts + 1:032x}"

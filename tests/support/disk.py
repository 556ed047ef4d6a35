"""The real disk with a hook before each change, which may note it, refuse it, or do something first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from topics.storage.filesystem import Buffer, File, Filesystem

Hook: TypeAlias = Callable[[str, Path], object]


class HookedFile(File):
    __slots__ = ("disk",)
    disk: HookedDisk

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        self.disk.before("write", Path(self.path), buffers, position)
        return super().write(buffers, position)

    def truncate(self, size: int) -> None:
        self.disk.before("truncate", Path(self.path))
        super().truncate(size)

    def sync(self) -> None:
        self.disk.before("sync", Path(self.path))
        if self.disk.waits:
            super().sync()


class HookedDisk(Filesystem):
    """`hook(operation, path)` is called before each change, and may raise."""

    # Without it, the page cache is enough: for a process that is only said to be killed.
    waits = True

    def __init__(self, hook: Hook | None = None, *, boot: bytes | None = None) -> None:
        self._hook = hook
        self.boot = boot

    def before(self, operation: str, path: Path, buffers: Sequence[Buffer] = (), position: int = 0) -> None:
        if self._hook is not None:
            self._hook(operation, path)

    def _hooked(self, file: File) -> File:
        hooked = HookedFile(file.fileno(), file.path)
        hooked.disk = self
        return hooked

    def create(self, path: str) -> File:
        self.before("create", Path(path))
        return self._hooked(super().create(path))

    def open(self, path: str) -> File:
        self.before("open", Path(path))
        return self._hooked(super().open(path))

    def make_dirs(self, path: str) -> None:
        self.before("make_dirs", Path(path))
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", Path(target))
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.before("remove", Path(path))
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.before("sync_dir", Path(path))
        if self.waits:
            super().sync_dir(path)

    def boot_id(self) -> bytes:
        return super().boot_id() if self.boot is None else self.boot


class QuickDisk(HookedDisk):
    """It does not wait for the disk, and has a boot id that a test may change."""

    waits = False

    def __init__(self, hook: Hook | None = None, *, boot: bytes = b"boot-1") -> None:
        super().__init__(hook, boot=boot)


class FullDisk(HookedDisk):
    """New files take the first few bytes and then no more."""

    def before(self, operation: str, path: Path, buffers: Sequence[Buffer] = (), position: int = 0) -> None:
        if operation == "write":
            with path.open("r+b") as file:
                file.seek(position)
                file.write(b"".join(buffers)[:7])
            raise OSError(28, "No space left on device")

    def open(self, path: str) -> File:
        return Filesystem.open(self, path)


class NotedDisk(HookedDisk):
    """It lists what happened in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, str]] = []
        # Of every write, where it began and how much it was.
        self.written: list[tuple[int, int]] = []

    def before(self, operation: str, path: Path, buffers: Sequence[Buffer] = (), position: int = 0) -> None:
        if operation in ("open", "make_dirs"):
            return
        self.notes.append((operation, path.name))
        if operation == "write":
            self.written.append((position, sum(map(len, buffers))))

    def give_way(self) -> None:
        self.notes.append(("give_way", ""))

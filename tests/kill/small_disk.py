"""File systems that run full: a real one of a few megabytes, and where nothing may be mounted, a limit."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support import ServerProcess

MIB = 1 << 20


class SmallDisk:
    """A file system of a few megabytes, filled and freed by a file beside ours."""

    # What a write is answered for which there is no room.
    refusal = (507, "disk_full")

    def __init__(self, directory: Path) -> None:
        self._filler = directory / "filler"
        self.directory = directory

    def fill(self, server: ServerProcess, leaving: int = 0) -> None:
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(64 * 1024))
        with self._filler.open("ab", buffering=0) as file:
            file.truncate(max(file.seek(0, 2) - leaving, 0))

    def free(self, server: ServerProcess) -> None:
        self._filler.unlink()


class SizeLimit:
    """No file of the server may grow beyond what it is now: that is not a full disk, but a failed write."""

    refusal = (500, "internal")

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fill(self, server: ServerProcess) -> None:
        self._limit(server, 64 * 1024)

    def free(self, server: ServerProcess) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(server: ServerProcess, size: int) -> None:
        # A new process has no limit.
        if server.process is not None:
            limits = (size, resource.RLIM_INFINITY)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def mounted(place: Path, megabytes: int, kind: str = "tmpfs") -> Iterator[bool]:
    """Whether it could be done: not everybody may mount. Of another kind, it lies in a file beside."""
    place.mkdir()
    size = f"{megabytes}m"
    commands = [["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]]
    if kind != "tmpfs":
        image = f"{place}.image"
        commands = [
            ["truncate", "-s", size, image],
            [f"mkfs.{kind}", "-q", image],
            ["mount", "-o", "loop", image, str(place)],
        ]
    try:
        codes = [subprocess.run(command, capture_output=True, check=False).returncode for command in commands]
        is_mounted = not any(codes)
    except FileNotFoundError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(place)], check=True)

"""A log's directories are held by one process at a time, and it notices when they are taken away."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.cold_tier import Tiers
from tests.storage.support import FS
from tests.support.disk import HookedDisk
from topics.storage.cold_choice import ForeignDirectory
from topics.storage.directories import LOCK, Directories
from topics.storage.fileheader import checksum
from topics.storage.filesystem import Filesystem, LockHeld
from topics.storage.home import Hold, Home
from topics.storage.identity import IDENTITY, OWNER, Identity, decode

# The lock


def test_a_process_that_holds_only_the_file_counts(tmp_path: Path) -> None:
    """It runs on another machine, where the lock of the directory is not seen."""
    other = FS.lock(str(tmp_path / LOCK))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LockHeld):
        Hold(FS, str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
    FS.unlock(other)
    Hold(FS, str(tmp_path)).release()


def test_a_lock_file_that_was_removed_is_put_back(tmp_path: Path) -> None:
    held = Hold(FS, str(tmp_path))
    assert held.keep()
    (tmp_path / LOCK).unlink()
    assert held.keep()
    with pytest.raises(LockHeld):
        FS.lock(str(tmp_path / LOCK))
    # A process that was faster, on a machine where directories have no locks.
    (tmp_path / LOCK).unlink()
    faster = FS.lock(str(tmp_path / LOCK))
    assert not held.keep()
    assert held.is_in_place()
    FS.unlock(faster)
    held.release()


def test_a_lock_file_that_cannot_be_put_back(tmp_path: Path) -> None:
    class Full(Filesystem):
        def lock(self, path: str) -> int:
            if Path(path).exists():
                return super().lock(path)
            raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / LOCK).touch()
    held = Hold(Full(), str(tmp_path))
    (tmp_path / LOCK).unlink()
    assert held.keep()
    held.release()


def test_a_disk_without_locks_of_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock file is all there is then."""
    import fcntl

    real = fcntl.flock

    def refuse(fd: int, how: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", refuse)
    held = Hold(FS, str(tmp_path))
    with pytest.raises(LockHeld):
        Hold(FS, str(tmp_path))
    assert held.keep()
    held.release()


# The directories


def broken(failing: str) -> Callable[[str, Path], None]:
    def hook(operation: str, path: Path) -> None:
        if operation == failing:
            raise OSError(errno.EIO, "Input/output error", path)

    return hook


def test_two_logs_that_come_for_the_same_empty_directory(tmp_path: Path) -> None:
    """The second one finds it locked before it finds whose it is."""

    first, second = Tiers(tmp_path, "first"), Tiers(tmp_path, "second")
    homes: list[Home] = []

    def interrupt(operation: str, path: Path) -> None:
        if path == first.cold and not homes:
            homes.append(first.open(first.cold))

    dirs = Directories(str(second.data), str(second.cold))
    with pytest.raises(
        ForeignDirectory, match=f"the cold directory {first.cold} is in use by another process"
    ):
        Home(HookedDisk(interrupt), dirs, dict)
    for home in homes:
        home.release()
    assert first.use(first.cold) == str(first.cold)
    assert second.use(None) is None


def test_a_directory_that_the_disk_does_not_make(tmp_path: Path) -> None:
    """Nothing is wrong with what it was asked for."""

    with pytest.raises(OSError, match="Input/output error"):
        Home(HookedDisk(broken("make_dirs")), Directories(str(tmp_path / "data"), None), dict)


# The identity


def test_what_is_no_identity() -> None:
    for content in (b"", b"{", b"[]", b'{"identity":"abc"}', b'{"identity":"' + b"g" * 32 + b'"}', b"\xff"):
        assert decode(content, Identity) is None
        assert decode(b"%s\n%016x\n" % (content, checksum(content)), Identity) is None
    text = b'{"identity":"' + b"0f" * 16 + b'","later":1}'
    later = b"%s\n%016x\n" % (text, checksum(text))
    assert decode(later, Identity) is not None
    assert decode(later.replace(b"0f", b"1f", 1), Identity) is None


@pytest.mark.parametrize("full", [IDENTITY, OWNER, ".topics.cold"])
def test_a_full_disk_stops_no_start(tmp_path: Path, full: str) -> None:
    """It is made up for later; until then, the locks are held."""

    def hook(operation: str, path: Path) -> None:
        if operation == "create" and path.name == full + ".tmp":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    tiers = Tiers(tmp_path)
    dirs = Directories(str(tiers.data), str(tiers.cold))
    home = Home(HookedDisk(hook), dirs, dict)
    assert home.cold_dir == str(tiers.cold)
    with pytest.raises(LockHeld):
        Hold(FS, str(tiers.cold))
    # No directory belongs to a log that would not know itself again.
    assert not (tiers.cold / OWNER).exists() or (tiers.data / IDENTITY).exists()
    home.release()
    assert tiers.use(tiers.cold) == str(tiers.cold)
    assert (tiers.cold / OWNER).exists()
    assert (tiers.data / IDENTITY).exists()


def test_any_other_failure_does(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path)
    with pytest.raises(OSError, match="Input/output error"):
        Home(HookedDisk(broken("create")), Directories(str(tiers.data), None), dict)
    assert tiers.use(None) is None

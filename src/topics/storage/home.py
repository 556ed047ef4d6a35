"""The directories of one log, taken by one process: locked, and marked as this log's.

    check the format, choose the cold directory (refusals end here, and nothing was touched)
      ─▶ lock both ─▶ choose again, now that nothing moves ─▶ identity ─▶ owner of the cold directory ─▶ note

A crash in between leaves a state from which the next start comes to the same.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from topics.core import ConfigError
from topics.storage.cold_choice import ColdChoice, ForeignDirectory, SealedRuns, choose_cold_dir, read_note
from topics.storage.directories import LOCK, Directories, require_format
from topics.storage.filesystem import Filesystem, LockHeld, write_file_atomically
from topics.storage.identity import Identity, Owner, read_identity, read_owner, write_identity, write_owner

log = logging.getLogger("topics")

# Not the disk is at fault, but what it was asked for.
_WRONG_PATHS = (
    errno.EEXIST,
    errno.ENOTDIR,
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


class Hold:
    """A directory that one process has to itself.

    There are two locks. The lock on the directory holds as long as the directory exists, under any name.
    Some file systems have no locks of directories, or keep them to one machine: for these, there is a lock on
    the file `.topics.lock`.
    """

    def __init__(self, fs: Filesystem, directory: str) -> None:
        """Raises `LockHeld` where another process has it."""
        self._fs = fs
        self.directory = directory
        self._path = os.path.join(directory, LOCK)
        self._inode = fs.lock_dir(directory)
        try:
            self._file = fs.lock(self._path)
        except BaseException:
            fs.unlock(self._inode)
            raise

    def is_in_place(self) -> bool:
        """Any thread: whether the path still leads to the directory that is held."""
        return self._fs.is_at(self._inode, self.directory)

    def keep(self) -> bool:
        """The same, and whether no other process has come in; a lock file that was removed is put back."""
        return self.is_in_place() and (self._fs.is_at(self._file, self._path) or self._lock_again())

    def _lock_again(self) -> bool:
        """The file was removed. Another process has locked a new one, or this one does."""
        try:
            locked = self._fs.lock(self._path)
        except LockHeld:
            return False
        except OSError:
            return True  # the directory is locked still; what is wrong with it shows elsewhere
        self._fs.unlock(self._file)
        self._file = locked
        return True

    def release(self) -> None:
        self._fs.unlock(self._file)
        self._fs.unlock(self._inode)


class Home:
    def __init__(self, fs: Filesystem, dirs: Directories, sealed: SealedRuns) -> None:
        """Take both directories.

        Raises `LockHeld` if another process has one of them, `OtherFormat` if another version of the program
        wrote one, and `ConfigError` if a directory cannot be used.
        """
        self._fs = fs
        self._dirs = dirs
        require_format(fs, dirs)
        choose_cold_dir(fs, dirs, sealed)
        _make(fs, dirs.root, "data directory", "TOPICS_DATA_DIR")
        self._data = Hold(fs, dirs.root)
        self._cold: Hold | None = None
        try:
            choice = choose_cold_dir(fs, dirs, sealed)
            if choice.path is not None:
                self._cold = self._hold_cold(choice.path)
                choice = choose_cold_dir(fs, dirs, sealed)
            self.cold_dir = choice.path
            self.identity = choice.identity or Identity(fs.new_identity())
            with _room_or_not():
                self._settle(choice)
        except BaseException:
            self.release()
            raise

    def _hold_cold(self, path: str) -> Hold:
        _make(self._fs, path, "cold directory", "TOPICS_COLD_DIR")
        try:
            return Hold(self._fs, path)
        except LockHeld:
            raise ForeignDirectory(f"the cold directory {path} is in use by another process") from None

    def _settle(self, choice: ColdChoice) -> None:
        """The identity comes first: a cold directory must not belong to a log that does not know it."""
        fs, dirs = self._fs, self._dirs
        if read_identity(fs, dirs.root) != self.identity:
            write_identity(fs, dirs.root, self.identity)
        else:
            # The process that wrote it may have been killed before its name was safe.
            fs.sync_dir(dirs.root)
        root = os.path.realpath(dirs.root)
        if choice.path is not None:
            owner = Owner(self.identity.identity, root)
            if read_owner(fs, choice.path) != owner:
                write_owner(fs, choice.path, owner)
            else:
                fs.sync_dir(choice.path)
        self._settle_note(root)

    def _settle_note(self, root: str) -> None:
        fs, dirs = self._fs, self._dirs
        noted_root, noted = read_note(fs, dirs.cold_note)
        if dirs.cold is not None:
            cold = os.path.realpath(dirs.cold)
            if (noted_root, noted) != (root, cold):
                note = os.fsencode(f"{root}\n{cold}\n")
                write_file_atomically(fs, dirs.root, os.path.basename(dirs.cold_note), [note])
        elif noted is not None and self.cold_dir is None:
            # Nothing of ours is there any more: what others put there later is none of our business.
            fs.remove(dirs.cold_note)

    def keep(self) -> bool:
        """Whether the data directory is still the one that was taken, and held by no other process."""
        return self._data.keep()

    def has(self, path: str) -> bool:
        """Any thread: whether this file or directory is in the directory that was taken, and not in another.

        A cold directory may be on a disk of its own, and that disk be gone for a while.
        """
        cold = self._cold
        is_cold = cold is not None and cold.directory in (path, os.path.dirname(path))
        return (cold if cold is not None and is_cold else self._data).is_in_place()

    def require(self, path: str) -> None:
        """Any thread, before anything is changed there. Raises where that would change another's files."""
        if not self.has(path):
            raise OSError(errno.ESTALE, "the directory was replaced or moved away", path)

    def release(self) -> None:
        self._data.release()
        if self._cold is not None:
            self._cold.release()


def _make(fs: Filesystem, path: str, what: str, setting: str) -> None:
    try:
        fs.make_dirs(path)
    except OSError as error:
        if error.errno not in _WRONG_PATHS:
            raise
        raise ConfigError(f"{setting}: the {what} {path} cannot be made: {error.strerror}") from None


@contextmanager
def _room_or_not() -> Iterator[None]:
    """A full disk must not keep a server from reading. The locks are held; the rest is made up for later."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("no room to note whose directory this is: %s", error)

"""A directory that one process has to itself.

There are two locks. The lock on the directory itself holds as long as the directory exists, under any name.
Some file systems have no locks of directories, or keep them to one machine: for these, there is a lock on the
file `.topics.lock`.
"""

import os

from topics.storage.filesystem import Filesystem, LockHeld

LOCK = ".topics.lock"


class Hold:
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

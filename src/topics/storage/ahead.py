"""Journal written ahead: the next file, full of zeros and synced, before it is needed.

A sync of a file that grows has to commit its length and its new blocks as well. Where the blocks have been
written before, only their content goes to the disk, in about half the time.

    make (any thread) ─▶ `ahead.tmp` ─▶ take: it gets its name, and frames take the place of zeros

The file is made anew each time, and one that a process has left is never used: it may have lost its name in a
crash and be full of frames. What is left of the zeros when the journal goes on elsewhere is cut off.
"""

import os
from threading import Lock

from topics.storage.filesystem import AHEAD, File, Filesystem, is_full

# Written and synced in pieces: one large sync would hold up all others.
_PIECE_BYTES = 1024 * 1024


class Ahead:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, AHEAD)
        # It is made beside the loop and taken on it; a full disk may come to either.
        self._lock = Lock()
        self._file: File | None = None
        # Of the file that is ready.
        self.size = 0

    def forget_left(self) -> None:
        """What an earlier process has left."""
        if self._fs.exists(self._path):
            self._fs.remove(self._path)

    def make(self, size: int) -> None:
        """One at a time, and only while there is none. No room: then there is none."""
        file = self._fs.create(self._path)
        try:
            zeros = bytes(min(size, _PIECE_BYTES))
            for at in range(0, size, _PIECE_BYTES):
                file.write([memoryview(zeros)[: size - at]], at)
                file.sync()
                self._fs.give_way()
        except OSError as error:
            file.close()
            self._fs.remove(self._path)
            if not is_full(error):
                raise
            return
        with self._lock:
            self._file, self.size = file, size

    def take(self, path: str) -> tuple[File, int] | None:
        """The file, which now has this name, and its size; None where there is none. Raises OSError."""
        file, size = self._let_go()
        if file is None:
            return None
        try:
            self._fs.rename(self._path, path)
        except FileNotFoundError:
            # Somebody has tidied up. It held nothing, so that the journal goes on without it.
            file.close()
            return None
        except OSError:
            file.close()
            self._fs.remove(self._path)
            raise
        file.path = path
        return file, size

    def drop(self) -> bool:
        """Let others have the room; whether there was any."""
        file, _ = self._let_go()
        if file is None:
            return False
        file.close()
        self._fs.remove(self._path)
        return True

    def _let_go(self) -> tuple[File | None, int]:
        with self._lock:
            file, size = self._file, self.size
            self._file, self.size = None, 0
            return file, size

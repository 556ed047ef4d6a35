"""Space kept in reserve: a file of nothing, given back piece by piece when the file system is full.

    make ─▶ (no room) give: its end is cut off, and removals find room there ─▶ make, when there is room again

What it takes is at most a sixteenth of what is free, and none rather than the last: a disk that is full when
the server starts has to do without. It is kept over restarts, so that one on a full disk finds it.

Journal that is written ahead of need comes out of the same sixteenth, what the reserve leaves of it, and is
the first to go when there is no room.
"""

import logging
import os
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from topics.core import MIB
from topics.storage.ahead import Ahead
from topics.storage.filesystem import File, Filesystem, is_full

log = logging.getLogger("topics.disk")

FILE_NAME = "reserve"
# Of what is free, the reserve and whatever else is written ahead of need take at most this part.
SHARE = 16
BLOCK_BYTES = 4096
# Less is not worth writing ahead.
_MIN_AHEAD_BYTES = 16 * 1024
# What is given at once, so that a full disk is not met again with every frame; less of a small reserve.
_GIVEN_BYTES = 256 * 1024
_GIVEN_SHARE = 16
# What a file system may need beside the bytes themselves: for a name, for its own tables.
_BESIDE_BYTES = 16 * 1024
# What a start writes before it answers: the beginning of a journal file, a name or two.
_START_BYTES = 64 * 1024
# With so much unused, no start is short of room, whatever a file system keeps for itself.
_PLENTY_BYTES = 64 * MIB

Result = TypeVar("Result")


class Reserve:
    def __init__(self, fs: Filesystem, directory: str, ahead: Ahead | None = None) -> None:
        self._fs = fs
        self._directory = directory
        self._ahead = ahead
        self._path = os.path.join(directory, FILE_NAME)
        # Given away on the loop, made beside it.
        self._lock = Lock()
        self._file: File | None = None
        # All of it would be there after a power loss.
        self._is_durable = True
        # What there is now, and the most there has been.
        self.size = self.made = 0
        # Something found no room but here, since the last time that there was enough.
        self.is_needed = False
        if fs.exists(self._path):
            self._file = fs.open(self._path)
            self.size = self.made = self._file.size()
            # The process that made it may have been killed before it was.
            self._is_durable = False

    def make(self, wanted: int, *, is_hasty: bool = False) -> None:
        """As large as wanted, or as there is room for. Only another wish makes it smaller again.

        Beside the loop: where a file system cannot do it in one go, it is written. `is_hasty`: a start does
        not wait for syncs; the next call makes up for them.
        """
        with self._lock:
            share = self._share()
            target = min(wanted, share) // BLOCK_BYTES * BLOCK_BYTES
            if self._ahead is not None and target + self._ahead.size > share:
                self._ahead.drop()
            if target > self.size:
                if self._grow(target):
                    self._is_durable = False
            elif wanted < self.size:
                self._cut(wanted)
                self.made = wanted
            self.made = max(self.made, self.size)
            if not self._is_durable and not is_hasty:
                # After a power loss it has to be there, or others may have taken what it held.
                assert self._file is not None
                self._file.sync()
                self._fs.sync_dir(self._directory)
                self._is_durable = True

    def _share(self) -> int:
        """What it and the next file of the journal may take, now that there is this much room."""
        ahead = 0 if self._ahead is None else self._ahead.size
        return (self._fs.room(self._directory).free_bytes + self.size + ahead) // SHARE

    def write_ahead(self, wanted: int, in_use: int) -> None:
        """Beside the loop: write the next file of the journal ahead, as much of it as there is room for.

        `in_use`: what is left of the current one. One that is ready stays as it is.
        """
        if self._ahead is None or self._ahead.size:
            return
        with self._lock:
            spare = self._share() + in_use // SHARE - self.size - in_use
        size = min(wanted, spare) // BLOCK_BYTES * BLOCK_BYTES
        if size >= _MIN_AHEAD_BYTES:
            self._ahead.make(size)

    def _grow(self, target: int) -> bool:
        """Whether there was room for it."""
        try:
            if self._file is None:
                self._file = self._fs.create(self._path)
            self._file.allocate(target)
        except OSError as error:
            if self._file is not None:
                self._file.truncate(self.size)
            if not is_full(error):
                raise
            return False
        self.size = target
        return True

    def _cut(self, size: int) -> None:
        assert self._file is not None
        self._file.truncate(size)
        # Otherwise a file system may take its time until it lets others have the space.
        self._file.sync()
        self.size = size

    def give(self, needed: int, *, keep: int = 0) -> bool:
        """There is no room for so much: let go of as much of the reserve. False when it has not got it.

        `keep`: so much stays for what is more important.
        """
        if self._ahead is not None and self._ahead.size >= max(needed, 1) and self._ahead.drop():
            self.is_needed = True
            return True
        with self._lock:
            spare = self.size - keep
            if spare <= 0 or needed > spare:
                return False
            usual = min(_GIVEN_BYTES, max(self.made // _GIVEN_SHARE, BLOCK_BYTES))
            try:
                self._cut(self.size - min(max(needed + _BESIDE_BYTES, usual), spare))
                self.is_needed = True
            except OSError as error:
                log.error("the reserve cannot be used: %s", error)
                self.size = 0
                return False
            return True

    def helping(self, needed: int, write: Callable[[], Result], *, keep: int = 0) -> Result:
        """Write something of this size, with room from here if there is no other. Raises like `write`."""
        while True:
            try:
                return write()
            except OSError as error:
                if not is_full(error) or not self.give(needed, keep=keep):
                    raise

    def let_start(self) -> None:
        """A server starts, and the disk may be full."""
        room = self._fs.room(self._directory)
        if room.unused_bytes >= _PLENTY_BYTES:
            return
        # If there is no more than that, it is perhaps what was given away before.
        self.is_needed = not self._could_have(min(_GIVEN_BYTES, enough_bytes(room.size_bytes)))
        if self.is_needed and not self._could_have(_START_BYTES):
            self.give(min(_START_BYTES, self.size))

    @property
    def half(self) -> int:
        """What is kept for removals when something else may be helped, too."""
        return self.made // 2

    @property
    def rest(self) -> int:
        """What is kept when something that was asked for makes room, and needs room for it."""
        return self.made // 8

    def finds_room(self) -> bool:
        """Whether so much room has come back that writes are worth taking again."""
        room = self._fs.room(self._directory)
        enough = enough_bytes(room.size_bytes)
        return room.unused_bytes >= enough and self._could_have(enough)

    def _could_have(self, size: int) -> bool:
        """Tried, not only asked: there may be a quota, or blocks that this process may not use."""
        with self._lock:
            before = self.size
            has_room = self._grow(before + size)
            if has_room:
                self._cut(before)
            return has_room

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def enough_bytes(size_bytes: int) -> int:
    """How much has to be free for writes to return, on a file system of this size."""
    return min(16 * MIB, size_bytes // SHARE)

"""What a killed process had promised, kept in one mapped page.

    magic 8 | boot id 32 | acked u64 | synced u64 | clock u64 | clean u64 | reserved u64

Updating it costs a memory store, no system call, yet the page outlives the process. At the next start it
settles three questions the journal alone cannot answer: was anything acknowledged cut off (`acked` lies
beyond the last intact frame), how late had readers already been told it was (`clock`), and how high a seq
can any topic have given out (`reserved`) when the frames that would tell are gone.
After a reboot the page may be older than the journal: a different boot id says so, and recovery then
relies on what had been synced.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from topics.storage.filesystem import Filesystem

FILE_NAME = "witness"
_MAGIC = b"TOPICSW1"
_LAYOUT = struct.Struct("<8s32sQQQQQ")
# The page as 64-bit words; the first five are magic and boot id.
_ACKED, _SYNCED, _CLOCK, _CLEAN, _RESERVED = 5, 6, 7, 8, 9


def is_intact(page: bytes) -> bool:
    """Whether these bytes are such a page."""
    return len(page) >= _LAYOUT.size and page.startswith(_MAGIC)


@dataclass(slots=True, frozen=True)
class Testimony:
    """The page as the previous process left it."""

    acked: int = 0
    synced: int = 0
    clock_ms: int = 0
    # No topic had a seq above it. 0: not known.
    reserved: int = 0
    clean: bool = False
    same_boot: bool = False
    # False where no process has ever come so far as to take a write.
    known: bool = False

    @property
    def proven(self) -> int:
        """The journal below this position had been written: frames missing from it are lost, not torn off.

        On the same boot, what was acknowledged is still in the page cache; otherwise only what was synced
        can be expected.
        """
        return self.acked if self.same_boot else self.synced


class Witness:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._page = fs.shared_page(os.path.join(directory, FILE_NAME), _LAYOUT.size)
        # Words, because a word is stored whole: a kill in between cannot leave half a number.
        self._words = memoryview(self._page.view).cast("Q")
        # Each stores one word: every write and every look at the clock calls one of these.
        self.acked: Callable[[int], None] = partial(self._words.__setitem__, _ACKED)
        self.synced: Callable[[int], None] = partial(self._words.__setitem__, _SYNCED)
        self.clock: Callable[[int], None] = partial(self._words.__setitem__, _CLOCK)
        self._boot = fs.boot_id().ljust(32, b"\0")
        magic, boot, acked, synced, clock, clean, reserved = _LAYOUT.unpack_from(self._page.view, 0)
        # A page that was cut short reads as zeros from there on; a whole one knows the time.
        self.previous = Testimony()
        if magic == _MAGIC and clock > 0:
            same_boot = boot == self._boot
            self.previous = Testimony(acked, synced, clock, reserved, clean == 1, same_boot, known=True)

    def begin(self, position: int, clock_ms: int, reserved: int = 0) -> None:
        """Recovery is over: from here on this process answers for the page."""
        _LAYOUT.pack_into(self._page.view, 0, _MAGIC, self._boot, position, position, clock_ms, 0, reserved)
        self._page.sync()
        self._fs.sync_dir(self._directory)

    def reserved(self, upto: int) -> None:
        """Seqs up to here are about to be given out, of whatever topic."""
        if upto > self._words[_RESERVED]:
            self._words[_RESERVED] = upto

    def close(self, *, clean: bool) -> None:
        if clean:
            self._words[_CLEAN] = 1
            self._page.sync()
        self._words.release()
        self._page.close()

"""Memory that records have left: kept for those to come, and given back to the system when these stay away.

Each page that was given back is made anew when it is wanted again, which costs a writer of batches a tenth of
its rate. So the allocator of a server is told to give nothing back by itself, and here it is said when it is
time.
"""

import ctypes
from contextlib import suppress

from topics.log import Engine

_MIB = 1024 * 1024
# When so much has come into memory or is gone, there is something to be given back.
MUCH_BYTES = 64 * _MIB
# So long after the last time that much came or went; under a load that does not rest, as often as this.
REST_S = 10.0
LONGEST_S = 60.0
# Parameters of glibc's mallopt, and our values. A page of records is some 200 KiB, a bulk write a few MiB; by
# default blocks of that size are handed back to the system when freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_FREE_BYTES = 1024 * _MIB
_LARGE_BYTES = 8 * _MIB


class FreedMemory:
    def __init__(self, engine: Engine, now_s: float) -> None:
        self._unsealed = engine.store.unsealed
        self._totals = engine.totals
        # All that had come so far, and the most that there was, when much had last come or gone.
        self._came = self._come
        self._live = self._totals.bytes
        # Nothing is to be given back as long as this is None.
        self._due_s: float | None = None
        self._last_s = now_s

    @property
    def _come(self) -> int:
        return self._unsealed.bytes + self._unsealed.left_bytes

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to give memory back; asked now and then."""
        come, live = self._come, self._totals.bytes
        self._live = max(self._live, live)
        if come - self._came + self._live - live >= MUCH_BYTES:
            if self._due_s is None:
                self._last_s = now_s
            self._came, self._live, self._due_s = come, live, now_s + REST_S
        if self._due_s is None or (now_s < self._due_s and now_s < self._last_s + LONGEST_S):
            return False
        self._due_s = None
        return True


def keep_freed_memory() -> None:
    """Tell the allocator that this process frees large blocks only to ask for the like again.

    Without effect where the C library is not glibc, and so is its counterpart.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def give_memory_back() -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)

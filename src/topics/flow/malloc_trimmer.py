"""Memory that was used and is free: kept for what comes next, and given back when that stays away.

Each page that was given back is made anew when it is wanted again, which costs a writer of batches a tenth of
its rate. So the allocator of a server is told to give nothing back by itself, and here it is said when it is
time.
"""

import ctypes
from contextlib import suppress

_MIB = 1024 * 1024
# Whoever uses much memory works for it, be it for writers or for readers: so much of processor time.
MUCH_WORK_S = 0.25
# Memory is given back so long after the last time that as much was done; under a load that does not rest, as
# often as this.
REST_S = 10.0
LONGEST_S = 60.0
# Parameters of glibc's mallopt, and our values. A page of records is some 200 KiB, a bulk write a few MiB; by
# default blocks of that size are handed back to the system when freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_FREE_BYTES = 1024 * _MIB
_LARGE_BYTES = 8 * _MIB


class MallocTrimmer:
    def __init__(self) -> None:
        # How much work had been done when it was last much.
        self._worked_s = 0.0
        # From when on it is time; at the latest then. Nothing is to be given back as long as they are None.
        self._due_s: float | None = None
        self._latest_s: float | None = None

    def is_due(self, now_s: float, worked_s: float) -> bool:
        """Whether it is time to give memory back; asked now and then.

        `worked_s`: all processor time of this process.
        """
        if worked_s - self._worked_s >= MUCH_WORK_S:
            self._worked_s, self._due_s = worked_s, now_s + REST_S
            self._latest_s = self._latest_s or now_s + LONGEST_S
        if self._due_s is None or self._latest_s is None or now_s < min(self._due_s, self._latest_s):
            return False
        self._due_s = self._latest_s = None
        return True


def keep_freed_blocks() -> None:
    """Tell the allocator that this process frees large blocks only to ask for the like again.

    Without effect where the C library is not glibc, and so is its counterpart.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def trim_malloc() -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)

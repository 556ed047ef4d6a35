"""The C library's allocator, told that a server frees large blocks only to ask for the like again."""

from __future__ import annotations

import ctypes

_MIB = 1024 * 1024
# Parameters of glibc's mallopt, and our values. A page of records is some 200 KiB, a bulk write a few MiB; by
# default blocks of that size are handed back to the system when freed, and cost more in page faults than in
# work.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_FREE_BYTES = 64 * _MIB
_LARGE_BYTES = 8 * _MIB


def keep_freed_memory() -> None:
    """Without effect where the C library is another."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_FREE_BYTES)

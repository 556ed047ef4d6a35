"""Where the rows of a complete run end, in two bytes each.

The upper half of an offset changes only every 64 KiB. It is enough to know at which rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np

from topics.storage.columns import U32

_BITS = 16


class PackedEnds:
    __slots__ = ("_borders", "_lower")

    def __init__(self, ends: array[int]) -> None:
        whole = np.frombuffer(ends, np.uint32)
        self._lower = array("H", whole.astype(np.uint16).tobytes())
        # For every multiple of 64 KiB, the first row that ends there or behind it.
        multiples = np.arange(1, (ends[-1] >> _BITS) + 1 if ends else 1) << _BITS
        self._borders = array("I", np.searchsorted(whole, multiples).astype(np.uint32).tobytes())

    def __len__(self) -> int:
        return len(self._lower)

    def __getitem__(self, index: int) -> int:
        return self._lower[index] + (bisect_right(self._borders, index) << _BITS)

    def whole(self) -> U32:
        edges = np.array([0, *self._borders, len(self._lower)])
        upper = np.repeat(np.arange(len(edges) - 1, dtype=np.uint32) << np.uint32(_BITS), np.diff(edges))
        return upper + np.frombuffer(self._lower, np.uint16)

    def unpacked(self) -> array[int]:
        return array("I", self.whole().tobytes())

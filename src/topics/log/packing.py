"""The flat columns of a run in memory, in as few bytes as they need."""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from struct import pack

import numpy as np

from topics.storage import U32, CodedNames
from topics.storage.filesystem import Buffer

# Packed ends have their upper half in common above so many bits.
_BITS = 16


class Names:
    """The values of a named field, coded: code 0 is none, code k is `names[k - 1]`."""

    __slots__ = ("_by_name", "codes", "names")

    def __init__(self, codes: "array[int] | None" = None, names: Sequence[str] = ()) -> None:
        # Only runs that have names take the memory of a dictionary.
        self._by_name: dict[str | None, int] | None = None
        # Kept from the first record on that has a value, as wide as the highest of them.
        self.codes = codes
        self.names: list[str] = []
        if names:
            self.encode(names)

    def extend(self, before: int, values: Sequence[str | None] | None, count: int) -> int:
        """Add the values of `count` records after `before` others; return how many names are new."""
        known = len(self.names)
        if values is not None:
            codes = self.encode(values)
        elif self.codes is not None:
            codes = array(self.codes.typecode, bytes(self.codes.itemsize * count))
        else:
            return 0
        column = self.codes
        if column is None:
            column = array("B", bytes(before))
        if column.itemsize < codes.itemsize:
            column = array(codes.typecode, column)
        column.extend(codes if codes.typecode == column.typecode else array(column.typecode, codes))
        self.codes = column
        return len(self.names) - known

    def between(self, start: int, stop: int) -> list[str | None] | None:
        """The values of these records."""
        names = self.names
        if self.codes is None:
            return None
        return [names[code - 1] if code else None for code in self.codes[start:stop]]

    def view(self) -> CodedNames:
        """Codes as columns have them everywhere else, however narrow they are kept here."""
        codes = self.codes
        whole = None if codes is None else np.frombuffer(codes, codes.typecode).astype(np.uint32)
        return CodedNames(whole, self.names)

    def code(self, name: str) -> int:
        """Return the code of a name, or 0 if no value has that name."""
        return 0 if self._by_name is None else self._by_name.get(name, 0)

    def encode(self, values: Sequence[str | None]) -> "array[int]":
        """Return the code of each value, in as few bytes as the highest code takes."""
        codes = self._by_name
        if codes is None:
            codes = self._by_name = {None: 0}
        try:
            found = list(map(codes.__getitem__, values))
        except KeyError:
            for value in values:
                if value is not None and value not in codes:
                    self.names.append(value)
                    codes[value] = len(self.names)
            found = list(map(codes.__getitem__, values))
        # `bytes` and `pack` convert all codes in one call, in half of the time that an array takes.
        if len(self.names) < 1 << 8:
            return array("B", bytes(found))
        width = "H" if len(self.names) < 1 << 16 else "I"
        return array(width, pack(f"{len(found)}{width}", *found))

    def close(self, count: int) -> None:
        """Share the names with other runs. No more of the `count` values are expected."""
        if 2 * len(self.names) <= count:
            # Names that repeat are the same in the next run: one copy of each serves them all.
            self.names = [sys.intern(name) for name in self.names]
            self._by_name = {None: 0} | {name: code for code, name in enumerate(self.names, 1)}


class PackedEnds:
    """Where the rows of a complete run end, in two bytes each.

    The upper half of an offset changes only every 64 KiB. It is enough to know at which rows.
    """

    __slots__ = ("_borders", "_lower")

    def __init__(self, ends: "array[int]") -> None:
        whole = np.frombuffer(ends, np.uint32)
        self._lower = array("H", whole.astype(np.uint16).tobytes())
        # For every multiple of 64 KiB, the first row that ends there or behind it.
        # Of the same type as the ends: otherwise those would all be converted.
        multiples = np.arange(1, (ends[-1] >> _BITS) + 1 if ends else 1, dtype=np.uint32) << np.uint32(_BITS)
        self._borders = array("I", np.searchsorted(whole, multiples).astype(np.uint32).tobytes())

    def __len__(self) -> int:
        return len(self._lower)

    def __getitem__(self, index: int) -> int:
        return self._lower[index] + (bisect_right(self._borders, index) << _BITS)

    def whole(self) -> U32:
        edges = np.array([0, *self._borders, len(self._lower)])
        upper = np.repeat(np.arange(len(edges) - 1, dtype=np.uint32) << np.uint32(_BITS), np.diff(edges))
        return upper + np.frombuffer(self._lower, np.uint16)

    def parts(self) -> "tuple[array[int], array[int]]":
        """The lower halves, and the rows from which on the upper half is one more."""
        return self._lower, self._borders

    def between(self, start: int, stop: int) -> U32:
        """Of these rows only."""
        ends = np.frombuffer(self._lower, np.uint16)[start:stop].astype(np.uint32)
        first, last = bisect_right(self._borders, start), bisect_right(self._borders, stop - 1)
        ends += np.uint32(first << _BITS)
        for border in self._borders[first:last]:
            ends[border - start :] += np.uint32(1 << _BITS)
        return ends

    def unpacked(self) -> "array[int]":
        return array("I", self.whole().tobytes())


def view(column: "array[int] | None") -> np.ndarray | None:
    return None if column is None else np.frombuffer(column, np.uint32)


def copied(column: U32 | None, count: int) -> "array[int] | None":
    return None if column is None else array("I", column[:count].tobytes())


def grow(column: "array[int] | None", before: int, values: Buffer | None, count: int) -> "array[int]":
    """A column with `count` more u32 values. Records without a value, and those before the column, get 0."""
    if column is None:
        column = array("I", bytes(4 * before))
    column.frombytes(bytes(4 * count) if values is None else values)
    return column

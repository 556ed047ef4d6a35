"""The columns of a run in memory: flat arrays that grow, and take less room once the run is complete."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from topics.log.write.batch import Batch
from topics.storage.columns import U32, Columns, total_at
from topics.storage.rows import around_data

# Calls into numpy cost microseconds each, whatever they do: for so few rows plain Python is faster.
_FEW = 64
# What a record takes in the columns beside its row, and a name that occurs for the first time, roughly: a
# string, its place in a dictionary here and in the index of tags, and their numbers.
_RECORD_BYTES = 16
_NAME_BYTES = 224
# Runs that take less grow as they please.
_LARGE_ROWS = 64 * 1024
# Packed ends have their upper half in common above so many bits.
_BITS = 16


class Names:
    """Dictionary coding of strings: code 0 is none, code k is `names[k - 1]`."""

    __slots__ = ("_codes", "names")

    def __init__(self) -> None:
        self._codes: dict[str, int] | None = None
        self.names: list[str] = []

    def encode(self, values: Iterable[str | None]) -> list[int]:
        codes = self._codes
        if codes is None:
            codes = self._codes = {name: code for code, name in enumerate(self.names, 1)}
        return [0 if value is None else codes.get(value) or self._add(codes, value) for value in values]

    def _add(self, codes: dict[str, int], value: str) -> int:
        self.names.append(value)
        codes[value] = len(self.names)
        return len(self.names)

    def close(self, count: int) -> None:
        """No more of the `count` values are expected: give back what only writing needs."""
        self._codes = None
        if 2 * len(self.names) <= count:
            # Names that repeat are the same in the next run: one copy of each serves them all.
            self.names = [sys.intern(name) for name in self.names]


class PackedEnds:
    """Where the rows of a complete run end, in two bytes each.

    The upper half of an offset changes only every 64 KiB. It is enough to know at which rows.
    """

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


class HotColumns:
    """Growing columns. Never keep a view of them across a call: an exported buffer cannot grow."""

    __slots__ = (
        "base",
        "data_lens",
        "ends",
        "hops",
        "meta_lens",
        "node_codes",
        "node_names",
        "rows",
        "size",
        "tag_codes",
        "tag_names",
        "ts_starts",
        "ts_values",
        "weight",
    )

    def __init__(self, base: int, room: int = 0) -> None:
        """`base` is the first record's seq; `room`: how many bytes of rows to expect, if that can be told.

        Rows that grow move again and again, and are copied several times over before a run is full. Room made
        beforehand costs nothing until it is used: it is not cleared.
        """
        self.base = base
        # Roughly what it takes in memory.
        self.weight = 0
        self.rows: bytearray | memoryview = np.empty(room, np.uint8).data if room else bytearray()
        # How much of `rows` is in use.
        self.size = 0
        self.ends: array[int] | PackedEnds = array("I")
        # Kept from the first record on that has a node or a meta: until then they follow from the rows.
        self.data_lens: array[int] | None = None
        self.meta_lens: array[int] | None = None
        self.ts_starts = array("I")
        self.ts_values = array("q")
        self.node_codes: array[int] | None = None
        self.node_names = Names()
        self.tag_codes: array[int] | None = None
        self.tag_names = Names()
        self.hops: bytearray | None = None

    @classmethod
    def beginning(cls, columns: Columns, count: int) -> HotColumns:
        """A copy of the first `count` records of other columns."""
        hot = cls(columns.base)
        hot.rows = bytearray(memoryview(columns.rows)[: columns.start_of(count)])
        hot.size = hot.weight = len(hot.rows)
        hot.ends = array("I", columns.ends[:count].tobytes())
        hot.data_lens = _copy(columns.known_data_lens, count)
        ts = columns.ts[:count]
        changes = np.concatenate(([0], np.flatnonzero(np.diff(ts)) + 1))
        hot.ts_starts = array("I", changes.astype(np.uint32).tobytes())
        hot.ts_values = array("q", ts[changes].astype(np.int64).tobytes())
        hot.meta_lens = _copy(columns.meta_lens, count)
        hot.node_codes, hot.tag_codes = _copy(columns.node_codes, count), _copy(columns.tag_codes, count)
        hot.node_names.encode(columns.nodes)
        hot.tag_names.encode(columns.tags)
        if columns.hops is not None:
            hot.hops = bytearray(columns.hops[:count].tobytes())
        return hot

    def extend(self, batch: Batch, rows: bytes, ts: int, hops: bytes | None = None) -> int:
        """Returns by how much the weight has grown."""
        ends = self.ends
        if isinstance(ends, PackedEnds):
            ends = self.ends = ends.unpacked()
        before = len(ends)
        if self.data_lens is not None:
            self.data_lens.extend(batch.data_lens)
        elif batch.nodes is not None or batch.meta_lens is not None:
            self.data_lens = array("I", self.view().data_lens.tobytes() if before else b"")
            self.data_lens.extend(batch.data_lens)
        offset = self.size
        self.size = end = offset + len(rows)
        if type(self.rows) is bytearray:
            self.rows += rows
        elif end <= len(self.rows):
            self.rows[offset:end] = rows
        else:
            self.rows = bytearray(self.rows[:offset])
            self.rows += rows
        added = len(rows) + _RECORD_BYTES * batch.count
        if batch.count == 1:
            ends.append(end)
        elif batch.count <= _FEW and batch.ends is None:
            ends.extend(_few_ends(rows, offset))
        else:
            row_ends = batch.row_ends(rows) if batch.ends is None else batch.ends
            ends.frombytes((row_ends + np.uint32(offset)).tobytes())
        if not self.ts_values or self.ts_values[-1] != ts:
            self.ts_starts.append(before)
            self.ts_values.append(ts)
        if batch.meta_lens is not None or self.meta_lens is not None:
            self.meta_lens = _grow(self.meta_lens, before, batch.meta_lens, batch.count)
        if batch.nodes is not None or self.node_codes is not None:
            codes = None if batch.nodes is None else self.node_names.encode(batch.nodes)
            self.node_codes = _grow_codes(
                self.node_codes, before, codes, batch.count, len(self.node_names.names)
            )
        if batch.tags is not None or self.tag_codes is not None:
            known = len(self.tag_names.names)
            codes = None if batch.tags is None else self.tag_names.encode(batch.tags)
            self.tag_codes = _grow_codes(
                self.tag_codes, before, codes, batch.count, len(self.tag_names.names)
            )
            added += _NAME_BYTES * (len(self.tag_names.names) - known)
        if hops is not None or self.hops is not None:
            if self.hops is None:
                self.hops = bytearray(before)
            self.hops += hops if hops is not None else bytes(batch.count)
        self.weight += added
        return added

    @property
    def room_for_next(self) -> int:
        """What a run that follows a full one like this will probably take."""
        return self.size + self.size // 8 if self.size >= _LARGE_ROWS else 0

    def close(self) -> None:
        """The run is complete: nothing more is expected."""
        if not isinstance(self.ends, PackedEnds):
            self.ends = PackedEnds(self.ends)
        self.node_names.close(len(self.ends))
        self.tag_names.close(len(self.ends))

    def truncate(self, count: int) -> int:
        """Forget everything from index `count` on (records whose commit failed); returns its weight."""
        if isinstance(self.ends, PackedEnds):
            self.ends = self.ends.unpacked()
        before = self.size + _RECORD_BYTES * len(self.ends)
        self.size = self.ends[count - 1] if count else 0
        if type(self.rows) is bytearray:
            del self.rows[self.size :]
        for column in (self.ends, self.data_lens, self.meta_lens, self.node_codes, self.tag_codes, self.hops):
            if column is not None:
                del column[count:]
        while self.ts_starts and self.ts_starts[-1] >= count:
            self.ts_starts.pop()
            self.ts_values.pop()
        removed = before - self.size - _RECORD_BYTES * len(self.ends)
        self.weight -= removed
        return removed

    def ts_at(self, index: int) -> int:
        return self.ts_values[bisect_right(self.ts_starts, index) - 1]

    def size_of(self, indexes: np.ndarray) -> int:
        """What these records count for, together."""
        if self.data_lens is not None:
            return total_at(indexes, _view(self.data_lens), _view(self.meta_lens))
        if len(indexes) <= _FEW:
            return sum([self.size_between(index, index + 1) for index in indexes.tolist()])
        return self.view().size_of(indexes)

    def size_between(self, start: int, stop: int) -> int:
        """The same for a stretch, which is not empty."""
        if self.data_lens is not None:
            size = sum(self.data_lens[start:stop])
            return size if self.meta_lens is None else size + sum(self.meta_lens[start:stop])
        around = self._around_data(start)
        if stop - start > 1 and around != self._around_data(stop - 1):
            return int(self.view().sizes(start, stop).sum())
        # Digits only become more: as many in the last row as in the first means as many in all.
        row_bytes = self.ends[stop - 1] - (self.ends[start - 1] if start else 0)
        return row_bytes - (stop - start) * around

    def _around_data(self, index: int) -> int:
        return around_data(self.base + index, self.ts_at(index))

    def view(self) -> Columns:
        ends = self.ends
        count = len(ends)
        starts = np.frombuffer(self.ts_starts, np.uint32)
        lengths = np.diff(np.append(starts, count))
        return Columns(
            self.base,
            count,
            self.rows[: self.size] if type(self.rows) is memoryview else self.rows,
            ends.whole() if isinstance(ends, PackedEnds) else np.frombuffer(ends, np.uint32),
            _view(self.data_lens),
            np.repeat(np.frombuffer(self.ts_values, np.int64), lengths),
            meta_lens=_view(self.meta_lens),
            node_codes=_codes(self.node_codes),
            nodes=self.node_names.names,
            tag_codes=_codes(self.tag_codes),
            tags=self.tag_names.names,
            hops=None if self.hops is None else np.frombuffer(self.hops, np.uint8),
        )


def _few_ends(rows: bytes, end: int) -> list[int]:
    return [end := end + len(row) + 1 for row in rows[:-1].split(b"\n")]


def _view(column: array[int] | None) -> np.ndarray | None:
    return None if column is None else np.frombuffer(column, np.uint32)


def _copy(column: U32 | None, count: int) -> array[int] | None:
    return None if column is None else array("I", column[:count].tobytes())


def _codes(column: array[int] | None) -> np.ndarray | None:
    """Codes as columns have them everywhere else, however narrow they are kept here."""
    return None if column is None else np.frombuffer(column, column.typecode).astype(np.uint32)


def _grow(column: array[int] | None, before: int, values: Sequence[int] | None, count: int) -> array[int]:
    """Columns appear with the first record that needs them; those before and between have zero."""
    if column is None:
        column = array("I", bytes(4 * before))
    if values is None:
        column.frombytes(bytes(4 * count))
    else:
        column.extend(values)
    return column


def _grow_codes(
    column: array[int] | None, before: int, values: Sequence[int] | None, count: int, highest: int
) -> array[int]:
    """The same for codes up to `highest`, in as few bytes each as those take."""
    width, size = ("B", 1) if highest < 1 << 8 else ("H", 2) if highest < 1 << 16 else ("I", 4)
    if column is None:
        column = array(width, bytes(size * before))
    elif column.itemsize < size:
        column = array(width, column)
    if values is None:
        column.frombytes(bytes(column.itemsize * count))
    else:
        column.extend(values)
    return column

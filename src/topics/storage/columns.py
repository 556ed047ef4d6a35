"""A run of records as columns: the shape shared by memory, segments and bulk readers.

`rows` holds the records exactly as readers receive them, one JSON object a line. Everything else is one
value per record. Where `data` and `meta` lie inside a row follows from the row's end and the two lengths,
because a row always ends `"data":<data>}` or `"data":<data>,"meta":<meta>}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.storage.buffer import Buffer

U8: TypeAlias = NDArray[np.uint8]
U32: TypeAlias = NDArray[np.uint32]
I64: TypeAlias = NDArray[np.int64]

META_KEY = b',"meta":'
DATA_KEY = b'"data":'
# What a row of nothing but data has around it, but for the digits of seq and ts.
_AROUND_DATA = len(b'{"$seq":,"$ts":,"data":}\n')


@dataclass(slots=True)
class Columns:
    base: int
    count: int
    rows: Buffer
    ends: U32
    # None: no row has a node or a meta, and the lengths follow from the rows'.
    known_data_lens: U32 | None
    ts: I64
    meta_lens: U32 | None = None
    # Code 0 means "none"; code k means names[k - 1].
    node_codes: U32 | None = None
    nodes: list[str] = field(default_factory=list)
    tag_codes: U32 | None = None
    tags: list[str] = field(default_factory=list)
    # Router hops each record has made; absent when nobody was forwarded.
    hops: U8 | None = None

    @property
    def data_lens(self) -> U32:
        if self.known_data_lens is None:
            self.known_data_lens = self.data_lens_between()
        return self.known_data_lens

    def data_lens_between(self, start: int = 0, stop: int | None = None) -> U32:
        """Of a stretch: what has to be told from the rows is told for these only."""
        if self.known_data_lens is not None:
            return self.known_data_lens[start:stop]
        ends, ts = self.ends[start:stop], self.ts[start:stop]
        lens = ends.copy()
        if len(lens):
            lens[1:] -= ends[:-1]
            lens[0] -= self.ends[start - 1] if start else 0
            lens -= _around_all(self.base + start, ts)
        return lens

    def sizes(self, start: int = 0, stop: int | None = None) -> I64:
        """What each record counts for in `bytes`, caps and read budgets."""
        sizes = self.data_lens_between(start, stop).astype(np.int64)
        if self.meta_lens is not None:
            sizes += self.meta_lens[start:stop]
        return sizes

    def size_of(self, indexes: NDArray[np.integer]) -> int:
        """What these records count for, together."""
        size = int(self.data_lens[indexes].sum(dtype=np.int64))
        if self.meta_lens is not None:
            size += int(self.meta_lens[indexes].sum(dtype=np.int64))
        return size

    def starts(self) -> I64:
        starts = np.empty(self.count, np.int64)
        if self.count:
            starts[0] = 0
            starts[1:] = self.ends[:-1]
        return starts

    def data_ends(self, start: int = 0, stop: int | None = None) -> I64:
        """Offset just behind each record's `data` inside `rows`."""
        ends = self.ends[start:stop].astype(np.int64) - 2  # the closing brace and the newline
        if self.meta_lens is not None:
            meta_lens = self.meta_lens[start:stop].astype(np.int64)
            ends -= np.where(meta_lens > 0, meta_lens + len(META_KEY), 0)
        return ends


def around_data(seq: int, ts: int) -> int:
    """How much longer than its data a row is that has neither node nor meta."""
    return _AROUND_DATA + len(str(seq)) + len(str(ts))


def _around_all(base: int, ts: I64) -> U32 | np.uint32:
    """The same for consecutive rows. Seqs rise and times never fall, so that digits only become more."""
    least = around_data(base, int(ts[0]))
    if least == around_data(base + len(ts) - 1, int(ts[-1])):
        return np.uint32(least)
    around = np.full(len(ts), least, np.uint32)
    for ascending in (np.arange(base, base + len(ts)), ts):
        for digits in range(len(str(ascending[0])), len(str(ascending[-1]))):
            around[np.searchsorted(ascending, 10**digits) :] += 1
    return around

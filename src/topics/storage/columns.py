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


@dataclass(slots=True)
class Columns:
    base: int
    count: int
    rows: Buffer
    ends: U32
    data_lens: U32
    ts: I64
    meta_lens: U32 | None = None
    # Code 0 means "none"; code k means names[k - 1].
    node_codes: U32 | None = None
    nodes: list[str] = field(default_factory=list)
    tag_codes: U32 | None = None
    tags: list[str] = field(default_factory=list)
    # Router hops each record has made; absent when nobody was forwarded.
    hops: U8 | None = None

    def sizes(self, start: int = 0, stop: int | None = None) -> I64:
        """What each record counts for in `bytes`, caps and read budgets."""
        sizes = self.data_lens[start:stop].astype(np.int64)
        if self.meta_lens is not None:
            sizes += self.meta_lens[start:stop]
        return sizes

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

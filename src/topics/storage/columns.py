"""A run of records as columns: the shape shared by memory, segments and bulk readers.

`rows` holds the records exactly as readers receive them, one JSON object a line. Everything else is one
value per record: where its row ends, how long `data` and `meta` are in there, when it was written, and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.codec.append_body import join_names, join_values
from topics.codec.row_text import END, META_KEY, around_data
from topics.core import FIELDS, NODE_AT, TAG_AT, Column, NameColumns, names_of
from topics.storage.filesystem import Buffer

U8: TypeAlias = NDArray[np.uint8]
U32: TypeAlias = NDArray[np.uint32]
I64: TypeAlias = NDArray[np.int64]
U64: TypeAlias = NDArray[np.uint64]


class CodedNames(NamedTuple):
    """The values of a named field. Code 0 means "none"; code k means `names[k - 1]`."""

    codes: U32 | None
    names: list[str]

    def at(self, indexes: I64) -> list[str | None] | None:
        """The values of these records."""
        if self.codes is None:
            return None
        by_code: list[str | None] = [None, *self.names]
        return [by_code[code] for code in self.codes[indexes].tolist()]


NO_NAMES = (CodedNames(None, []),) * len(FIELDS)


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
    # One for each of `FIELDS`.
    names: tuple[CodedNames, ...] = NO_NAMES
    # Router hops each record has made; absent when no record was forwarded.
    hops: U8 | None = None

    @property
    def nodes(self) -> CodedNames:
        return self.names[NODE_AT]

    @property
    def tags(self) -> CodedNames:
        return self.names[TAG_AT]

    def start_of(self, index: int) -> int:
        """Where a row begins, which is where the one before it ends."""
        return int(self.ends[index - 1]) if index else 0

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
        return total_at(indexes, self.data_lens, self.meta_lens)

    def data_ends(self, start: int = 0, stop: int | None = None) -> I64:
        """Offset just behind each record's `data` inside `rows`."""
        ends = self.ends[start:stop].astype(np.int64) - len(END)
        if self.meta_lens is not None:
            meta_lens = self.meta_lens[start:stop].astype(np.int64)
            ends -= np.where(meta_lens > 0, meta_lens + len(META_KEY), 0)
        return ends

    def records(self, indexes: I64) -> "Records":
        """The records at these indexes (ascending), taken apart."""
        if not len(indexes):
            return NO_RECORDS
        first, last = int(indexes[0]), int(indexes[-1])
        begin = self.start_of(first)
        # One copy of the whole stretch: slices of bytes are cheap, views of a growing run are forbidden.
        block = bytes(memoryview(self.rows)[begin : int(self.ends[last])])
        data_ends = self.data_ends(first, last + 1)[indexes - first] - begin
        data_begins = (data_ends - self.data_lens_between(first, last + 1)[indexes - first]).tolist()
        ends = data_ends.tolist()
        metas: list[bytes | None] | None = None
        if self.meta_lens is not None:
            skip = len(META_KEY)
            metas = [
                block[end + skip : end + skip + length] if length else None
                for end, length in zip(ends, self.meta_lens[indexes].tolist(), strict=True)
            ]
        return Records(
            indexes + self.base,
            [block[a:b] for a, b in zip(data_begins, ends, strict=True)],
            metas,
            names_of([column.at(indexes) for column in self.names]),
            None if self.hops is None else self.hops[indexes],
        )


@dataclass(slots=True)
class Records:
    """Records taken apart, a list for each part that one of them has. Nothing in it refers to their run."""

    seqs: I64
    data: list[bytes]
    metas: list[bytes | None] | None
    names: NameColumns
    hops: U8 | None

    @property
    def tags(self) -> Column:
        return self.names[TAG_AT] if self.names else None

    def __len__(self) -> int:
        return len(self.data)

    @property
    def size(self) -> int:
        """What they count for, together."""
        size = sum(map(len, self.data))
        return size if self.metas is None else size + sum([len(meta) for meta in self.metas if meta])

    def take(self, indexes: I64) -> "Records":
        chosen = indexes.tolist()
        return Records(
            self.seqs[indexes],
            [self.data[i] for i in chosen],
            None if self.metas is None else [self.metas[i] for i in chosen],
            tuple(None if column is None else [column[i] for i in chosen] for column in self.names),
            None if self.hops is None else self.hops[indexes],
        )


NO_RECORDS = Records(np.empty(0, np.int64), [], None, (), None)


def join_records(parts: Sequence[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_RECORDS
    lengths = [len(part) for part in parts]
    hops = None
    if any(part.hops is not None for part in parts):
        hops = np.concatenate([np.zeros(len(p), np.uint8) if p.hops is None else p.hops for p in parts])
    return Records(
        np.concatenate([part.seqs for part in parts]),
        [value for part in parts for value in part.data],
        join_values([part.metas for part in parts], lengths),
        join_names([part.names for part in parts], lengths),
        hops,
    )


def total_at(indexes: NDArray[np.integer], *columns: U32 | None) -> int:
    """The sum of all these columns at these places; what is None adds nothing."""
    return sum(int(column[indexes].sum(dtype=np.int64)) for column in columns if column is not None)


def _around_all(base: int, ts: I64) -> U32 | np.uint32:
    """`around_data` of consecutive rows. Seqs rise and times never fall, so that digits only become more."""
    least = around_data(base, int(ts[0]))
    if least == around_data(base + len(ts) - 1, int(ts[-1])):
        return np.uint32(least)
    around = np.full(len(ts), least, np.uint32)
    for ascending in (np.arange(base, base + len(ts)), ts):
        for digits in range(len(str(ascending[0])), len(str(ascending[-1]))):
            around[np.searchsorted(ascending, 10**digits) :] += 1
    return around

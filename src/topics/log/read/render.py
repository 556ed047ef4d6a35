"""Rows as a particular reader asked for them.

The stored row is what most readers want, so the common case is a slice. Adding the tag, or leaving out
`meta` or `data`, cuts and joins the stored bytes at positions that follow from the side columns.
"""

import msgspec
import numpy as np

from topics import codec
from topics.core import names_of
from topics.log.packing import PackedEnds
from topics.log.run import HotColumns, Run
from topics.storage import DATA_KEY, END, META_KEY, TAG, Columns, Records

_encode = msgspec.json.encode


class Shape(msgspec.Struct, frozen=True, gc=False):
    """Which optional parts of a record a reader wants."""

    tags: bool = False
    meta: bool = True
    data: bool = True

    def is_stored(self, columns: HotColumns | Columns) -> bool:
        """True when the stored rows of this run already have the wanted shape."""
        has_tags = self.tags and columns.tags is not None and columns.tags.codes is not None
        return self.data and not has_tags and (self.meta or columns.meta_lens is None)


STORED = Shape()


def gather(columns: Columns, indexes: np.ndarray, shape: Shape) -> bytes:
    """The rows at `indexes` (ascending), newline-terminated, in the wanted shape."""
    if not len(indexes):
        return b""
    if shape.is_stored(columns):
        return _gather_stored(columns, indexes)
    return b"".join(_reshape(columns, indexes, shape))


def _gather_stored(columns: Columns, indexes: np.ndarray) -> bytes:
    ends, rows = columns.ends, columns.rows
    first, last = int(indexes[0]), int(indexes[-1])
    if last - first + 1 == len(indexes):
        return bytes(rows[columns.start_of(first) : int(ends[last])])
    # Neighbours are copied together: one slice for every unbroken stretch.
    breaks = np.flatnonzero(np.diff(indexes) != 1)
    first_of = np.concatenate((indexes[:1], indexes[breaks + 1]))
    last_of = np.concatenate((indexes[breaks], indexes[-1:]))
    begin = np.where(first_of > 0, ends[first_of - 1], 0).tolist()
    end = ends[last_of].tolist()
    return b"".join([rows[a:b] for a, b in zip(begin, end, strict=True)])


def gather_alive(
    hot: HotColumns, dead: bytearray, start: int, stop: int, room: int, budget: int
) -> tuple[bytes, int] | None:
    """`room` stored rows of a run in memory, from `start` on, that are not deleted; and the index after them.

    None if there are not as many among the first rows, or if they exceed the budget.
    """
    ends, borders = hot.ends.parts() if isinstance(hot.ends, PackedEnds) else (hot.ends, None)
    return codec.alive(hot.rows, ends, borders, dead, start, min(stop, start + 2 * room), room, budget)


def _reshape(columns: Columns, indexes: np.ndarray, shape: Shape) -> list[bytes]:
    rows = columns.rows
    ends = columns.ends[indexes].astype(np.int64)
    begins = np.where(indexes > 0, columns.ends[indexes - 1], 0).astype(np.int64)
    first, last = int(indexes[0]), int(indexes[-1])
    data_ends = columns.data_ends(first, last + 1)[indexes - first]
    data_begins = data_ends - columns.data_lens_between(first, last + 1)[indexes - first]
    tags = columns.tags.at(indexes) if shape.tags else None
    parts: list[bytes] = []
    for at, (begin, data_begin, data_end, end) in enumerate(
        zip(begins.tolist(), data_begins.tolist(), data_ends.tolist(), ends.tolist(), strict=True)
    ):
        line = bytes(rows[begin : data_begin - len(DATA_KEY)])
        if tags is not None and (tag := tags[at]) is not None:
            line += TAG % _encode(tag)
        if shape.data:
            line += bytes(rows[data_begin - len(DATA_KEY) : data_end])
        else:
            line = line[:-1]  # the comma before the data that is left out
        if shape.meta and data_end + len(META_KEY) < end:
            line += bytes(rows[data_end : end - len(END)])
        parts.append(line + END)
    return parts


# With more, the columns are worth making.
FEW = 16


def few_records(run: Run, start: int, stop: int, max_bytes: int) -> Records | None:
    """Return all records of a stretch in memory; None if they are many, large, or some are deleted.

    Making the columns of a run takes as long for one record as for thousands. A reader that follows a topic
    asks for the last record, again and again.
    """
    hot = run.hot
    if hot is None or stop - start > FEW or run.live_between(start, stop) < stop - start:
        return None
    begin, end = hot.ends[start - 1] if start else 0, hot.ends[stop - 1]
    if end - begin > max_bytes:
        return None
    block = bytes(memoryview(hot.rows)[begin:end])
    data: list[bytes] = []
    metas: list[bytes | None] = []
    for index in range(start, stop):
        end = hot.ends[index] - begin - len(END)
        meta_len = 0 if hot.meta_lens is None else hot.meta_lens[index]
        metas.append(block[end - meta_len : end] if meta_len else None)
        if meta_len:
            end -= meta_len + len(META_KEY)
        data.append(block[end - (hot.size_between(index, index + 1) - meta_len) : end])
    return Records(
        np.arange(hot.base + start, hot.base + stop),
        data,
        None if hot.meta_lens is None else metas,
        names_of([names.between(start, stop) for names in hot.names]),
        None if hot.hops is None else np.frombuffer(hot.hops[start:stop], np.uint8),
    )

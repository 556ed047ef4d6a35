"""Stored rows as the pages that readers get."""

import numpy as np

from topics.codec.python import Buffer


def page(before: bytes, rows: bytes, after: bytes, /) -> bytes:
    """The rows as elements of an array between these texts: commas instead of all newlines but the last."""
    # A view avoids a copy of the page.
    return b"".join((before, memoryview(rows.replace(b"\n", b","))[:-1] if rows else b"", after))


def alive(
    rows: Buffer,
    ends: Buffer,
    borders: "Buffer | None",
    marks: Buffer,
    start: int,
    stop: int,
    room: int,
    budget: int,
    /,
) -> tuple[bytes, int] | None:
    """`room` rows from `start` on that are not marked, and the index after the last of them.

    None if there are fewer before `stop`, or if they exceed the budget together with the marked rows between
    them. `ends` holds the end of each row as u32; with `borders`, as u16: the lower halves, and the indexes
    of the rows from which on the upper half is one more.
    """
    count = len(memoryview(ends).cast("B")) // (4 if borders is None else 2)
    marked = np.frombuffer(marks, np.uint8)[start:stop]
    if not 0 <= start < stop <= count or len(marked) != stop - start or room < 1:
        raise ValueError("there are no such rows")
    live = np.flatnonzero(marked == 0)
    if len(live) < room:
        return None
    taken = int(live[room - 1]) + 1
    edges = _edges(ends, borders, start, start + taken)
    if (np.diff(edges) < 0).any() or edges[-1] > len(memoryview(rows).cast("B")):
        raise ValueError("these are not the ends of the rows")
    if edges[-1] - edges[0] > budget:
        return None
    # One slice for each stretch between two marked rows.
    gone = np.flatnonzero(marked[:taken])
    begins = edges[np.concatenate(([0], gone + 1))].tolist()
    stops = edges[np.concatenate((gone, [taken]))].tolist()
    view = memoryview(rows)
    return b"".join([view[begin:end] for begin, end in zip(begins, stops, strict=True)]), start + taken


def _edges(ends: Buffer, borders: "Buffer | None", start: int, stop: int) -> np.ndarray:
    """The begin of the first of these rows, and the end of each."""
    first = max(start - 1, 0)
    if borders is None:
        whole = np.frombuffer(ends, np.uint32)[first:stop].astype(np.int64)
    else:
        upper = np.searchsorted(np.frombuffer(borders, np.uint32), np.arange(first, stop), "right")
        whole = np.frombuffer(ends, np.uint16)[first:stop] + (upper.astype(np.int64) << 16)
    return whole if start else np.concatenate(([0], whole))

"""Taking the content out of records while their places stay: what a purge writes instead of them.

A blank keeps its seq and its time, because a run is dense and its times never fall. Everything a writer put
into the record is gone: `data` is null, and there is no meta, no node and no tag. It is an ordinary row, so
that no reader of segments has to know about purges.
"""

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.storage import PLAIN, U32, Columns

Mask: TypeAlias = NDArray[np.bool_]
_NULL = b"null"


def is_blank(columns: Columns, gone: Mask) -> bool:
    """True when nothing is left of the records in `gone`, nor a name that no record uses any more."""
    if gone.any():
        indexes = np.flatnonzero(gone)
        for codes in (columns.meta_lens, columns.node_codes, columns.tag_codes):
            if codes is not None and codes[indexes].any():
                return False
        if (columns.data_lens[indexes] != len(_NULL)).any():
            return False
        rows = np.frombuffer(columns.rows, np.uint8)
        begins = columns.data_ends()[indexes] - len(_NULL)
        if any((rows[begins + at] != letter).any() for at, letter in enumerate(_NULL)):
            return False
    names = ((columns.node_codes, columns.nodes), (columns.tag_codes, columns.tags))
    return all(codes is None or len(_used(codes)) == len(known) for codes, known in names)


def blanked(columns: Columns, gone: Mask) -> Columns:
    """The same run with blanks in the place of the records in `gone`."""
    rows, ends = _rows(columns, gone)
    data_lens = columns.data_lens.copy()
    data_lens[gone] = len(_NULL)
    node_codes, nodes = _recoded(columns.node_codes, columns.nodes, gone)
    tag_codes, tags = _recoded(columns.tag_codes, columns.tags, gone)
    hops = None if columns.hops is None else np.where(gone, 0, columns.hops).astype(np.uint8)
    return Columns(
        columns.base,
        columns.count,
        rows,
        ends,
        data_lens,
        columns.ts,
        meta_lens=_without(columns.meta_lens, gone),
        node_codes=node_codes,
        nodes=nodes,
        tag_codes=tag_codes,
        tags=tags,
        hops=hops,
    )


def _rows(columns: Columns, gone: Mask) -> tuple[bytes, U32]:
    """Whole stretches of what stays, and a short row for each record that does not."""
    lengths = np.diff(columns.ends.astype(np.int64), prepend=0)
    view = memoryview(columns.rows)
    edges = [0, *(np.flatnonzero(np.diff(gone)) + 1).tolist(), columns.count]
    parts: list[bytes | memoryview] = []
    for first, last in pairwise(edges):
        if not gone[first]:
            parts.append(view[columns.start_of(first) : columns.start_of(last)])
            continue
        for index, ts in enumerate(columns.ts[first:last].tolist(), first):
            row = PLAIN % (columns.base + index, ts, _NULL)
            parts.append(row)
            lengths[index] = len(row)
    return b"".join(parts), np.cumsum(lengths).astype(np.uint32)


def _without(column: U32 | None, gone: Mask) -> U32 | None:
    """Zero for those that are gone; no column at all when nothing else is left in it."""
    if column is None:
        return None
    kept = np.where(gone, np.uint32(0), column).astype(np.uint32)
    return kept if kept.any() else None


def _recoded(codes: U32 | None, names: list[str], gone: Mask) -> tuple[U32 | None, list[str]]:
    """Codes into a list that has only those names that are still in use."""
    kept = _without(codes, gone)
    if kept is None:
        return None, []
    used = _used(kept)
    recode = np.zeros(len(names) + 1, np.uint32)
    recode[used] = np.arange(1, len(used) + 1, dtype=np.uint32)
    return recode[kept], [names[code - 1] for code in used.tolist()]


def _used(codes: U32) -> U32:
    found = np.unique(codes)
    return found[found > 0]

"""Row rendering for callers that do not use `topics.codec` yet."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topics.codec.row_text import (
    DATA_KEY,
    END,
    HEAD,
    LAST_DIGITS,
    LOWEST_SEQ,
    META_KEY,
    NODE_KEY,
    PLAIN,
    SEQ_KEY,
    TAG,
    TS_KEY,
    Value,
    around_data,
    node_of,
    render_rows,
)

__all__ = [
    "DATA_KEY",
    "END",
    "HEAD",
    "LAST_DIGITS",
    "LOWEST_SEQ",
    "META_KEY",
    "NODE_KEY",
    "PLAIN",
    "SEQ_KEY",
    "TAG",
    "TS_KEY",
    "Value",
    "around_data",
    "node_of",
    "render_rows",
    "restamp",
    "rows_and_ends",
]


def restamp(
    rows: NDArray[np.uint8], ends: NDArray[np.uint32], were: tuple[int, int], are: tuple[int, int]
) -> bool:
    """Replace the first seq and the time of rendered rows in place.

    False if the numbers do not have as many digits as before: then nothing is changed.
    """
    last = len(ends) - 1
    digits = len(str(were[0]))
    if {len(str(seq)) for seq in (were[0] + last, are[0], are[0] + last)} != {digits}:
        return False
    before, after = str(were[1]).encode(), str(are[1]).encode()
    if len(before) != len(after):
        return False
    at = np.zeros(len(ends), np.int64)
    at[1:] = ends[:-1]
    at += len(b"{" + SEQ_KEY)
    seqs = np.arange(are[0], are[0] + len(ends))
    for place in range(digits):
        unit = 10 ** (digits - 1 - place)
        if were[0] // unit != (are[0] + last) // unit or were[0] > are[0]:
            rows[at + place] = seqs // unit % 10 + ord("0")
    at += digits + len(TS_KEY)
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            rows[at + place] = new
    return True


def rows_and_ends(values: Sequence[str], first_seq: int, ts: int, offset: int) -> tuple[bytes, list[int]]:
    """Rows of ASCII data without anything else, and the end of each after `offset` bytes."""
    begin, stamp, last = "{" + SEQ_KEY.decode(), f"{TS_KEY.decode()}{ts},{DATA_KEY.decode()}", END.decode()
    rows: list[str] = []
    ends: list[int] = []
    for seq, value in enumerate(values, first_seq):
        row = f"{begin}{seq}{stamp}{value}{last}"
        rows.append(row)
        offset += len(row)
        ends.append(offset)
    return "".join(rows).encode(), ends

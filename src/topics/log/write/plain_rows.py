"""Rows of records that are nothing but data, joined from pieces: twice as fast as encoding them one by one.

    {"$seq":12 | 345 | ,"$ts":1700000000000,"data": | {"a":1} | }⏎{"$seq":12 | 346 | …

A thousand consecutive seqs differ in their last three digits only, and those are known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

# Below, a seq has no three last digits.
LOWEST_SEQ = 1000
# Preparing the pieces takes as long as encoding some records.
FEWEST_ROWS = 8
_LAST_DIGITS = [b"%03d" % number for number in range(1000)]
_END = b"}\n"


def plain_rows(values: Sequence[Raw], first_seq: int, ts: int) -> bytes:
    """A line for each value, their seqs counting up from `first_seq`."""
    count = len(values)
    thousands, digits = divmod(first_seq, 1000)
    heads: list[bytes] = []
    numbers: list[bytes] = []
    while len(numbers) < count:
        taken = _LAST_DIGITS[digits : digits + count - len(numbers)]
        heads += [b'}\n{"$seq":%d' % thousands] * len(taken)
        numbers += taken
        thousands, digits = thousands + 1, 0
    heads[0] = heads[0][len(_END) :]
    pieces: list[bytes | Raw] = [_END] * (4 * count + 1)
    pieces[0:-1:4] = heads
    pieces[1::4] = numbers
    pieces[2::4] = [b',"$ts":%d,"data":' % ts] * count
    pieces[3::4] = values
    return b"".join(pieces)

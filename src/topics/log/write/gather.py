"""Several small writes, taken apart in one go: their records become one batch.

A write that is nothing but plain records is what nearly all small ones are. Any other is *odd*, and left to
whoever has the time to find out what it says. The topic is there, so that `"create":false` says nothing:
with the accelerator, such a write is not odd.
"""

from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from topics.log.write.append_form import compact_json
from topics.log.write.append_frame import CutBatch
from topics.log.write.batch import Batch
from topics.values import UNDECODABLE, ApiError, accelerator

# Larger writes gain nothing from company.
SMALL_BODY_BYTES = 4096
_BEFORE, _AFTER = b'{"records":[{"data":', b"}]}"
_BETWEEN = (_AFTER + b"\0" + _BEFORE).decode()
_BLANK, _TAB, _LF, _CR = b" \t\n\r"
_values = msgspec.json.Decoder(Raw).decode_lines


# The data of plain records, and how long each is.
Plain: TypeAlias = tuple[list[str], list[int]]


class Gathered(NamedTuple):
    # None if all of them are odd.
    batch: Batch | None
    # How many records each write has that is not odd; None if each has one.
    counts: list[int] | None
    # Which ones are odd, in ascending order.
    odd: list[int]


def gather(bodies: list[bytes]) -> Gathered:
    """The records of all writes that are not odd, in the order of the writes."""
    if accelerator.native is None:
        return _gather_values(bodies)
    records, counts, odd = accelerator.native.gather(bodies)
    if odd:
        # Most of these are odd for their blanks.
        bodies = list(bodies)
        for index in odd:
            bodies[index] = _compact(bodies[index])
        records, counts, odd = accelerator.native.gather(bodies)
    return Gathered(None if records is None else CutBatch(records), counts, odd)


def _gather_values(bodies: list[bytes]) -> Gathered:
    """Without the accelerator: all that is not one plain record is odd."""
    odd: list[int] = []
    plain = split_plain(bodies)
    if plain is not None:
        values, lengths = plain
    else:
        values, lengths = [], []
        for index, body in enumerate(bodies):
            found = split_plain([_compact(body)])
            if found is None:
                odd.append(index)
            else:
                values += found[0]
                lengths += found[1]
        if not values:
            return Gathered(None, None, odd)
    return Gathered(Batch([value.encode() for value in values], lengths), None, odd)


def split_plain(bodies: list[bytes]) -> Plain | None:
    """The data of each, if each is exactly one plain record, without a blank and in ASCII."""
    text = b"\0".join(bodies)
    if text[:20] != _BEFORE or text[-3:] != _AFTER or not text.isascii():
        return None
    if _BLANK in text or _TAB in text or _LF in text or _CR in text:
        return None
    pieces = text[20:-3].decode().split(_BETWEEN)
    if len(pieces) != len(bodies):
        return None
    try:
        # No JSON has a zero in it: every body begins and ends where it is cut, or one of the pieces has one.
        values = _values("\n".join(pieces))
    except UNDECODABLE:
        return None
    lengths = [*map(len, pieces)]
    # Each value is as long as its piece: then each piece is one value, and nothing else.
    return (pieces, lengths) if [*map(len, values)] == lengths else None


def _compact(body: bytes) -> bytes:
    try:
        return compact_json(body)
    except ApiError:
        return body  # which is no JSON, and stays odd

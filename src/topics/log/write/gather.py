"""Several small writes, taken apart in one go: their records become one batch.

A write that is nothing but records is what nearly all small ones are. Any other is *odd*, and left to whoever
has the time to find out what it says. The topic is there, so that `"create":false` behind the records says
nothing: such a write is not odd.

Without the accelerator, `gather_lines` takes apart what is not one plain record each. It takes all that the
accelerator takes.
"""

from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from topics.log.write.append_form import compact_json
from topics.log.write.append_frame import CutBatch
from topics.log.write.batch import Batch
from topics.log.write.gather_lines import gather_lines
from topics.values import UNDECODABLE, ApiError, accelerator

# Larger writes gain nothing from company.
SMALL_BODY_BYTES = 4096
_BEFORE, _AFTER = b'{"records":[{"data":', b"}]}"
_BETWEEN = (_AFTER + b"\0" + _BEFORE).decode()
# Between bodies that are one array each. No part of it is both its beginning and its end: two never overlap.
_BORDER = b'],"\\u0000",['
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
        for index, body in zip(odd, _compacted([bodies[index] for index in odd]), strict=True):
            bodies[index] = body
        records, counts, odd = accelerator.native.gather(bodies)
    return Gathered(None if records is None else CutBatch(records), counts, odd)


def _gather_values(bodies: list[bytes]) -> Gathered:
    """Without the accelerator."""
    plain = split_plain(bodies)
    if plain is None:
        return Gathered(*gather_lines(_compacted(bodies)))
    values, lengths = plain
    return Gathered(Batch([value.encode() for value in values], lengths), None, [])


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


def _compacted(bodies: list[bytes]) -> list[bytes]:
    """The same without insignificant white space, in one go if all of them are JSON."""
    try:
        whole = compact_json(b"[[" + _BORDER.join(bodies) + b"]]")
    except ApiError:
        return [*map(_compact, bodies)]
    # No border is part of a string: one that is open there would end at its quote, and go on with what is no
    # JSON. So all are still there, and if there are no others, between them is what was between them.
    pieces = whole[2:-2].split(_BORDER)
    return pieces if len(pieces) == len(bodies) else [*map(_compact, bodies)]


def _compact(body: bytes) -> bytes:
    try:
        return compact_json(body)
    except ApiError:
        return b""  # as odd as what is no JSON; nobody is to find a blank in it

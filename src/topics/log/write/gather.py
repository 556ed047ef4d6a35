"""Several small writes, taken apart in one go: their records become one batch.

A write that is nothing but records is what nearly all small ones are. Any other is *odd*, and left to whoever
has the time to find out what it says. The topic is there, so that `"create":false` behind the records says
nothing: such a write is not odd.

Without the accelerator, nothing is odd that it would take. It is stricter: escapes in names, escaped halves
of a pair, names that come twice in a record, deep values and large metas are odd only with it. Either way,
what is taken is what the write would be by itself.
"""

from itertools import chain
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw

from topics.log.write.append_form import Line, NamedLine, PlainLine, compact_json
from topics.log.write.append_frame import CutBatch
from topics.log.write.append_request import check_records
from topics.log.write.batch import Batch, Plain
from topics.values import MAX_BATCH_RECORDS, UNDECODABLE, ApiError, accelerator, require_utf8

# Larger writes gain nothing from company.
SMALL_BODY_BYTES = 4096
_BEFORE, _AFTER = b'{"records":[{"data":', b"}]}"
_BETWEEN = (_AFTER + b"\0" + _BEFORE).decode()
# Between bodies that are one array each. No part of it is both its beginning and its end: two never overlap.
_BORDER = b'],"\\u0000",['
_BLANK, _TAB, _LF, _CR = b" \t\n\r"
_values = msgspec.json.Decoder(Raw).decode_lines
_BEGINS, _ENDS, _ENDS_UNCREATED = b'{"records":[', b"]}", b'],"create":false}'
_Some = Meta(min_length=1, max_length=MAX_BATCH_RECORDS)
_decode_plain = msgspec.json.Decoder(Annotated[list[PlainLine], _Some]).decode_lines
_decode_named = msgspec.json.Decoder(Annotated[list[NamedLine], _Some]).decode_lines
_decode_any = msgspec.json.Decoder(Annotated[list[Line], _Some]).decode_lines


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
        return _gather_decoded(bodies)
    records, counts, odd = accelerator.native.gather(bodies)
    if odd:
        # Most of these are odd for their blanks, and where one has some, all have.
        records, counts, odd = accelerator.native.gather(_compacted(bodies))
    return Gathered(None if records is None else CutBatch(records), counts, odd)


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


# --- without the accelerator --------------------------------------------------------------------------------


def _gather_decoded(bodies: list[bytes]) -> Gathered:
    plain = split_plain(bodies)
    if plain is None:
        return _gather_any(_compacted(bodies))
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


def _gather_any(bodies: list[bytes]) -> Gathered:
    """Of bodies without blanks. Decoded at once; if that fails, each is asked by itself which one it was."""
    arrays = [*map(_array, bodies)]
    taken = _take([array for array in arrays if array])
    if taken is None:
        arrays = [array if _take([array]) else b"" for array in arrays]
        taken = _take([array for array in arrays if array])
    if taken is None:
        return Gathered(None, None, [*range(len(bodies))])
    batch, counts = taken
    odd = [index for index, array in enumerate(arrays) if not array]
    return Gathered(batch, None if batch.count == len(counts) else counts, odd)


def _array(body: bytes) -> bytes:
    """The records of a write that says nothing else, or only what means nothing where there is a topic.

    Of any other it is empty, as no array is.
    """
    if body.startswith(_BEGINS):
        if body.endswith(_ENDS):
            return body[11:-1]
        if body.endswith(_ENDS_UNCREATED):
            return body[11:-16]
    return b""


def _take(arrays: list[bytes]) -> tuple[Batch, list[int]] | None:
    """All their records, and how many each has; None if something may be wrong with one, or there is none."""
    text = b"\n".join(arrays)
    try:
        require_utf8(text)
        writes = _decoded(text)
        # No value goes on from a closing bracket to an opening one, and no string over a newline: each array
        # begins and ends as one, or nothing is decoded. What is left to ask is whether it is only one.
        if not writes or len(writes) != len(arrays):
            return None
        records = [*chain.from_iterable(writes)]  # of one kind
        batch = check_records(records, None, len(text))  # type: ignore[arg-type]
    except (ApiError, *UNDECODABLE):
        return None
    return batch, [*map(len, writes)]


def _decoded(text: bytes) -> list[list[PlainLine]] | list[list[NamedLine]] | list[list[Line]]:
    """As most fit, of all that came together."""
    for decode in (_decode_plain, _decode_named):
        try:
            return decode(text)
        except msgspec.ValidationError:
            pass
    return _decode_any(text)

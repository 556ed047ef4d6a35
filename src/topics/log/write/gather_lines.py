"""Small writes of any records, taken apart in one go where there is no accelerator.

    what each has between its brackets ─▶ a line each ─▶ decoded at once ─▶ checked at once: one batch
            └─ if that fails, each is asked by itself, and those that are all right are decoded again

Decoding is not as strict as the accelerator, which leaves more to others: text with escapes in names or of
halves of a pair, names that come twice in a record, deep values and large metas are taken here. What is taken
is what the write would be by itself, either way.
"""

from itertools import chain
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from topics.log.write.append_form import Line, NamedLine, PlainLine
from topics.log.write.append_request import check_records
from topics.log.write.batch import Batch
from topics.values import MAX_BATCH_RECORDS, UNDECODABLE, ApiError, require_utf8

_BEGINS, _ENDS, _ENDS_UNCREATED = b'{"records":[', b"]}", b'],"create":false}'
_Some = Meta(min_length=1, max_length=MAX_BATCH_RECORDS)
_decode_plain = msgspec.json.Decoder(Annotated[list[PlainLine], _Some]).decode_lines
_decode_named = msgspec.json.Decoder(Annotated[list[NamedLine], _Some]).decode_lines
_decode_any = msgspec.json.Decoder(Annotated[list[Line], _Some]).decode_lines

# Their records, and how many each has.
Taken: TypeAlias = tuple[Batch, list[int]]


def gather_lines(bodies: list[bytes]) -> tuple[Batch | None, list[int] | None, list[int]]:
    """What `Gathered` describes. The bodies have no blanks."""
    arrays = [*map(_array, bodies)]
    taken = _take([array for array in arrays if array])
    if taken is None:
        arrays = [array if _take([array]) else b"" for array in arrays]
        taken = _take([array for array in arrays if array])
    odd = [index for index, array in enumerate(arrays) if not array]
    if taken is None:
        return None, None, odd
    batch, counts = taken
    return batch, None if batch.count == len(counts) else counts, odd


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


def _take(arrays: list[bytes]) -> Taken | None:
    """None if something may be wrong with one of them, or there is none."""
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

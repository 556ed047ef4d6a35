"""How much an Arrow stream unfolds to, told from its messages before a single buffer is unpacked.

    stream   message, message, … until one of length 0
    message  FFFFFFFF (not in old streams) | length i32 | a flatbuffer of that length | body

The flatbuffer says where the buffers of a batch lie in the body, and whether they are compressed. Those that
are begin with the length of what is in them, -1 if they were left as they are. Decoders take exactly as much
memory as that says and refuse what does not fit, so a length can be believed: a lie is too much, or an error.

Read as the Arrow library reads it, down to the oldest form that it accepts: a message that is understood
differently here and there could unfold to more than was counted.
"""

import struct
from collections.abc import Iterator

from topics.core import MAX_BULK_RECORDS, MIB, ApiError, invalid

# Every one of them is answered for, and 64 MiB of empty ones would be a quarter of a million.
MAX_RECORD_BATCHES = 10_000
# Room for thousands of columns, of which five are read.
MAX_SCHEMA_BYTES = MIB

_CONTINUATION = 0xFFFFFFFF
_LENGTH = struct.Struct("<I")
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# A trial of 2020, before compression was part of the format; the library still understands it.
_TRIAL_COMPRESSION = b"ARROW:experimental_compression"
_PREFIX = struct.Struct("<q")
_PAIR = struct.Struct("<qq")
_U16, _I32 = struct.Struct("<H"), struct.Struct("<i")


class NotArrow(ValueError):
    """The bytes are not the messages of a stream."""


def unfolded_size(body: bytes, max_bytes: int) -> tuple[int, int]:
    """The bytes of all buffers of all batches and dictionaries, and how many batches there are.

    Refuses the body if that is too much.
    """
    size = batches = 0
    try:
        for kind, header, body_at in _messages(body):
            if kind == _SCHEMA and len(header.data) > MAX_SCHEMA_BYTES:
                raise invalid(f"the schema takes more than {MAX_SCHEMA_BYTES} bytes")
            if kind not in (_DICTIONARY, _BATCH):
                continue
            batch = header if kind == _BATCH else header.table(1)
            if batch is None:
                raise NotArrow("a dictionary without values")
            if kind == _BATCH:
                batches += 1
                _check_counts(batch, batches)
            size += _size_of(batch, body, body_at)
            if size > max_bytes:
                raise unfolds_to_too_much(max_bytes)
    except (struct.error, IndexError, NotArrow) as error:
        raise invalid(f"body is not a valid Arrow stream: {error}") from None
    return size, batches


def unfolds_to_too_much(max_bytes: int) -> ApiError:
    return ApiError("payload_too_large", f"the decoded body exceeds {max_bytes} bytes")


def _check_counts(batch: "_Table", batches: int) -> None:
    if batches > MAX_RECORD_BATCHES:
        raise ApiError("batch_too_large", f"at most {MAX_RECORD_BATCHES} record batches fit in one body")
    if batch.number(0, "<q") > MAX_BULK_RECORDS:
        raise ApiError("batch_too_large", f"at most {MAX_BULK_RECORDS} rows fit in one record batch")


def _size_of(batch: "_Table", body: bytes, body_at: int) -> int:
    buffers = batch.pairs(2)
    if batch.table(3) is None:
        return sum(_checked(length) for _, length in buffers)
    return sum(_unpacked(body, body_at, offset, length) for offset, length in buffers if length)


def _unpacked(body: bytes, body_at: int, offset: int, length: int) -> int:
    """What stands at the beginning of a compressed buffer."""
    if _checked(length) < _PREFIX.size:
        raise NotArrow("a compressed buffer is too short")
    (told,) = _PREFIX.unpack_from(body, body_at + _checked(offset))
    return length - _PREFIX.size if told == -1 else _checked(told)


def _checked(number: int) -> int:
    if number < 0:
        raise NotArrow("a negative length")
    return number


def _messages(body: bytes) -> Iterator[tuple[int, "_Table", int]]:
    """Kind, header, and where the body begins."""
    at = 0
    while at + _LENGTH.size <= len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if length == _CONTINUATION:
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
        if length == 0:
            return
        metadata = body[at : at + length]
        if len(metadata) < length:
            raise NotArrow("a message is cut off")
        if _TRIAL_COMPRESSION in metadata:
            raise NotArrow("compressed in a form that was given up in 2020")
        message = _root(metadata)
        header = message.table(2)
        body_length = message.number(3, "<q")
        at += length
        if header is None or not 0 <= body_length <= len(body) - at:
            raise NotArrow("a message without its content")
        yield message.number(1, "<B"), header, at
        at += body_length


class _Table:
    """A table of a flatbuffer: fields by number, each perhaps not there."""

    __slots__ = ("_at", "_fields_at", "_size", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self._at = at
        self._fields_at = at - _I32.unpack_from(data, at)[0]
        if self._fields_at < 0:
            raise NotArrow("a table without fields")
        (self._size,) = _U16.unpack_from(data, self._fields_at)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = _U16.unpack_from(self.data, self._fields_at + entry)
        return self._at + offset if offset else None

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + int(_LENGTH.unpack_from(self.data, place)[0])

    def table(self, field: int) -> "_Table | None":
        target = self._target(field)
        return None if target is None else _Table(self.data, target)

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two numbers."""
        target = self._target(field)
        if target is None:
            return iter(())
        (count,) = _LENGTH.unpack_from(self.data, target)
        start = target + _LENGTH.size
        vector = self.data[start : start + _PAIR.size * count]
        if len(vector) < _PAIR.size * count:
            raise NotArrow("a list of buffers is cut off")
        return _PAIR.iter_unpack(vector)


def _root(data: bytes) -> _Table:
    return _Table(data, _LENGTH.unpack_from(data, 0)[0])

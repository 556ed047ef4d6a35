"""The form of an append request, and the rules that each of its records has to keep.

`data` and `meta` stay the JSON text that they arrived in, without insignificant white space: numbers,
duplicate keys and the order of keys come back as they were sent.
"""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from topics.codec.large_json import ItemLimits
from topics.core import (
    FIELDS,
    MAX_BATCH_RECORDS,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_RECORD_BYTES,
    NODE_AT,
    ApiError,
    ConfigBody,
    NameColumns,
    NamedField,
    invalid,
    names_of,
)

# Levels of arrays and objects in one value. The decoder of the Python codec uses the stack of the
# interpreter, which has room for about a thousand calls: the limit leaves enough of it for the callers.
MAX_DEPTH = 900
# A shorter value cannot be too deep.
SHALLOW_BYTES = 2 * MAX_DEPTH
# An object of at most this many bytes cannot have more keys than a meta may have.
MANY_KEYS_BYTES = MAX_META_KEYS * 5
# The text of a record without its data and meta, however its names are escaped.
MOST_AROUND_RECORD = 16 * 1024
# `Raw` that was sent is never empty.
NOTHING = Raw(b"")
_NULL = Raw(b"null")
_NOT_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^"\[\]{}]++', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\1\1\xff\xff")

Value: TypeAlias = bytes | Raw


class PlainLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record that has only data."""

    data: Raw = NOTHING


class Line(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Any record."""

    data: Raw = NOTHING
    meta: Raw = NOTHING
    tag: str | None = None
    node: str | None = None


_NAMES = [field.name for field in FIELDS]
_names_in = attrgetter(*_NAMES)


class AppendBody(msgspec.Struct, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The body of an append request."""

    records: list[Line] | UnsetType = UNSET
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False
    return_seqs: bool = True


class PublishBody(AppendBody, gc=False, kw_only=True, forbid_unknown_fields=True):
    """An append request as a WebSocket command."""

    op: Any = None
    request_id: Raw = _NULL
    topic: str | None = None


class RecordColumns(NamedTuple):
    """Checked records. A column is None if no record has a value for it."""

    values: Sequence[Value]
    data_lens: list[int]
    metas: Sequence[Value | None] | None
    names: NameColumns


def checked_columns(lines: list[Line], batch_node: str | None, first: int = 0) -> RecordColumns:
    """The columns of these records; raises for the first mistake. `first`: the index of the first record."""
    for index, line in enumerate(lines, first):
        size = len(line.data)
        if not size:
            raise invalid(f"records[{index}]: data is required")
        if size > MAX_RECORD_BYTES:
            raise record_too_large(index)
        if index == 0:
            _check_name(FIELDS[NODE_AT], batch_node, "node")
        for field, value in zip(FIELDS, _names_in(line), strict=True):
            if value is not None:
                _check_name(field, value, f"records[{index}].{field.name}")
        if line.meta and size + _check_meta(line.meta, index) > MAX_RECORD_BYTES:
            raise record_too_large(index)
    values = [line.data for line in lines]
    names: list[list[str | None]] = [*map(list, zip(*map(_names_in, lines), strict=True))]
    if batch_node is not None:
        names[NODE_AT] = [batch_node if node is None else node for node in names[NODE_AT]]
    return RecordColumns(
        values,
        [*map(len, values)],
        # A null counts as absent.
        some([line.meta if line.meta and line.meta != _NULL else None for line in lines]),
        names_of([*map(some, names)]),
    )


def _check_name(field: NamedField, value: str | None, what: str) -> None:
    # No string with so few characters takes too many bytes.
    if value is None or len(value) <= field.max_bytes // 4:
        return
    if len(value.encode()) > field.max_bytes:
        raise invalid(f"{what} must be at most {field.max_bytes} bytes")


_decode_meta = msgspec.json.Decoder(dict[str, Raw]).decode


def _check_meta(meta: Raw, index: int) -> int:
    """The length of the meta, or 0 if it is null."""
    if meta == _NULL:
        return 0
    text = bytes(meta)
    if text[:1] != b"{":
        raise invalid(f"records[{index}].meta must be an object")
    if len(text) > MAX_META_BYTES:
        raise invalid(f"records[{index}].meta must be at most {MAX_META_BYTES} bytes")
    check_meta_keys(text, f"records[{index}].meta")
    return len(text)


def check_meta_keys(meta: bytes, what: str) -> None:
    """Refuse a meta with too many keys."""
    if len(meta) <= MANY_KEYS_BYTES:
        return
    try:
        count = len(_decode_meta(meta))
    except RecursionError:
        raise invalid(f"{what} is nested too deeply") from None
    if count > MAX_META_KEYS:
        raise invalid(f"{what} must have at most {MAX_META_KEYS} keys")


def some(column: list[Any]) -> list[Any] | None:
    """The column, or None if it holds nothing."""
    return column if any(value is not None for value in column) else None


def joined(parts: list[RecordColumns]) -> RecordColumns:
    """The records of all parts, in this order."""
    if len(parts) == 1:
        return parts[0]
    counts = [len(part.values) for part in parts]
    return RecordColumns(
        [value for part in parts for value in part.values],
        [size for part in parts for size in part.data_lens],
        join_values([part.metas for part in parts], counts),
        join_names([part.names for part in parts], counts),
    )


def join_names(parts: Sequence[NameColumns], counts: Sequence[int]) -> NameColumns:
    """The names of all parts, each of which has so many records."""
    if not any(parts):
        return ()
    return names_of(
        [join_values([part[at] if part else None for part in parts], counts) for at in range(len(FIELDS))]
    )


def join_values(columns: Sequence[Sequence[Any] | None], counts: Sequence[int]) -> list[Any] | None:
    if all(column is None for column in columns):
        return None
    whole: list[Any] = []
    for column, count in zip(columns, counts, strict=True):
        whole += [None] * count if column is None else column
    return whole


def check_depth(value: Value) -> None:
    """Refuse a JSON value that has more than `MAX_DEPTH` levels."""
    if len(value) > SHALLOW_BYTES and _is_too_deep(bytes(value)):
        raise too_deep()


def _is_too_deep(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    steps = np.frombuffer(_NOT_BRACKETS.sub(b"", text).translate(_STEPS), np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)) > MAX_DEPTH


def too_deep() -> ApiError:
    return invalid("body is nested too deeply")


def no_records() -> ApiError:
    return invalid(f"records must be an array of 1 to {MAX_BATCH_RECORDS} records")


def too_many() -> ApiError:
    return ApiError("batch_too_large", f"at most {MAX_BATCH_RECORDS} records fit in one write")


def record_too_large(index: int) -> ApiError:
    return ApiError(
        "record_too_large", f"records[{index}]: data and meta together exceed {MAX_RECORD_BYTES} bytes"
    )


# For bodies that are cut into pieces before they are decoded.
RECORD_LIMITS = ItemLimits(
    MAX_BATCH_RECORDS, too_many, MAX_RECORD_BYTES + MOST_AROUND_RECORD, record_too_large
)

"""The codec in Python: used where the compiled one is missing, and the reference for it."""

import struct
from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

from topics.codec.append_body import (
    NOTHING,
    RECORD_LIMITS,
    SHALLOW_BYTES,
    AppendBody,
    Line,
    PlainLine,
    PublishBody,
    RecordColumns,
    check_depth,
    checked_columns,
    joined,
    no_records,
    record_too_large,
    some,
    too_many,
)
from topics.codec.large_json import LARGE_BYTES, cut_out
from topics.codec.row_text import render_rows
from topics.codec.stored import HAS_HOPS, HAS_META
from topics.core import (
    FIELDS,
    MAX_BATCH_RECORDS,
    MAX_RECORD_BYTES,
    MAX_SEQ,
    UNDECODABLE,
    ApiError,
    NameColumns,
    StrictDecoder,
    UnknownFields,
    invalid,
    names_of,
    require_utf8,
)
from topics.core import explain as explain_names

Buffer: TypeAlias = "bytes | bytearray | memoryview | array[int]"

_HEAD = struct.Struct("<II")
_END = struct.Struct("<I")
# The beginning and end of a body that has only records.
_BEGINS, _ENDS = b'{"records":[', b"}]}"
_pack = msgspec.msgpack.Encoder().encode


class _Records(msgspec.Struct, gc=False):
    records: list[Line]


_decode_plain = msgspec.json.Decoder(list[PlainLine]).decode
_decode_lines = msgspec.json.Decoder(list[Line]).decode
_decode_body = msgspec.json.Decoder(_Records).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


class Options(msgspec.Struct, gc=False, kw_only=True):
    """What a request says beside its records."""

    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: Raw = NOTHING
    disable_backpressure: bool = False
    return_seqs: bool = True
    op: Raw = NOTHING
    request_id: Raw = NOTHING
    topic: str | None = None


_decode_options = msgspec.json.Decoder(Options).decode
_NO_OPTIONS = Options()
_NULL = Raw(b"null")


class Write:
    """The records and options of one append request."""

    __slots__ = (
        "columns",
        "config",
        "count",
        "create",
        "key",
        "patient",
        "return_seqs",
        "size",
    )

    def __init__(self, columns: RecordColumns, options: Options = _NO_OPTIONS) -> None:
        self.columns = columns
        self.count = len(columns.values)
        self.size = sum(columns.data_lens)
        if columns.metas is not None:
            self.size += sum(map(len, filter(None, columns.metas)))
        key, config = options.idempotency_key, options.config
        self.key = None if key is None else key.encode()
        self.create = options.create
        self.config = bytes(config) if len(config) and config != _NULL else None
        self.patient = options.disable_backpressure
        self.return_seqs = options.return_seqs


# --- decode -------------------------------------------------------------------------------------------------


def decode(bodies: list[bytes], *, publish: bool = False) -> list[Write | None]:
    """Decode append requests; None for a request with a mistake."""
    return [_decode(body, publish) for body in bodies]


def _decode(body: bytes, publish: bool) -> Write | None:
    try:
        return _large_write(body, publish) if len(body) > LARGE_BYTES else _write(body, publish)
    except (ApiError, *UNDECODABLE):
        return None


def _write(body: bytes, publish: bool) -> Write:
    require_utf8(body)
    text = compact(body)
    if text[:12] == _BEGINS and text[-3:] == _ENDS:
        # Anything but records between the brackets would not be one array.
        try:
            return Write(_only_records(text[11:-1]))
        except msgspec.DecodeError:
            pass
    options = decode_options(text, publish)
    return Write(_columns(_decode_body(text).records, options), options)


def _large_write(body: bytes, publish: bool) -> Write:
    """Decode in steps that release the interpreter lock in between."""
    cut = cut_out(body, "records", RECORD_LIMITS)
    require_utf8(cut.around)
    options = decode_options(cut.around, publish)
    refusal = cut.too_many or cut.too_large
    if refusal is not None:
        raise refusal
    parts: list[RecordColumns] = []
    for items, count in cut.pieces:
        require_utf8(items)
        parts.append(_columns(_decode_lines(b"[%b]" % items), options))
        if len(parts[-1].values) != count:
            raise invalid("trailing comma in array")
    if not parts:
        raise no_records()
    return Write(joined(parts), options)


def compact(text: bytes) -> bytes:
    """The JSON without insignificant white space."""
    # Asking by byte value is four times faster than by a bytes object.
    if 32 in text or 10 in text or 9 in text or 13 in text:
        return msgspec.json.format(text, indent=-1)
    return text


_NAMES = {
    publish: StrictDecoder(
        msgspec.defstruct(
            "Names", [(name, Raw, NOTHING) for name in kind.__struct_fields__], forbid_unknown_fields=True
        )
    )
    for publish, kind in ((False, AppendBody), (True, PublishBody))
}


def decode_options(text: bytes, publish: bool) -> Options:
    """The options in a compact body; raises for unknown and duplicate names and for wrong types."""
    members, form = _decode_members(text), _NAMES[publish]
    if not members.keys() <= set(form.kind.__struct_fields__):
        raise invalid("unknown names")
    # Brackets, names, values and the characters between them: this length leaves no room for duplicates.
    if len(text) != 1 + sum([len(name) + len(value) + 4 for name, value in members.items()]):
        explain_names(text, form).tell(UnknownFields.refuse)
    options = _decode_options(text)
    if len(options.config) and options.config != _NULL and bytes(options.config)[:1] != b"{":
        raise invalid("config must be an object")
    for value in (options.config, options.op, options.request_id):
        check_depth(value)
    return options


def _only_records(array: bytes) -> RecordColumns:
    try:
        return _plain_columns(_decode_plain(array))
    except msgspec.ValidationError:
        return _columns(_decode_lines(array), _NO_OPTIONS)


def _plain_columns(lines: list[PlainLine]) -> RecordColumns:
    values = [line.data for line in lines]
    lengths = [*map(len, values)]
    _check_count(lengths)
    if min(lengths) == 0:
        raise invalid("data is required")
    if (longest := max(lengths)) > MAX_RECORD_BYTES:
        raise record_too_large(lengths.index(longest))
    if longest > SHALLOW_BYTES:
        for value in values:
            check_depth(value)
    return RecordColumns(values, lengths, None, ())


def _columns(lines: list[Line], options: Options) -> RecordColumns:
    _check_count(lines)
    for line in lines:
        check_depth(line.data)
        check_depth(line.meta)
    return checked_columns(lines, options.node)


def _check_count(records: Sequence[object]) -> None:
    if not records:
        raise no_records()
    if len(records) > MAX_BATCH_RECORDS:
        raise too_many()


# --- columns ------------------------------------------------------------------------------------------------


def from_columns(
    data: Buffer,
    data_offsets: Buffer,
    metas: list[bytes | None] | None,
    names: NameColumns,
    *,
    checked: bool,
) -> Write | None:
    """The records of these columns.

    Unless they are checked, every cell of `data` has to be one JSON value without insignificant white space,
    and None is returned if one is not.
    """
    text, offsets = memoryview(data).cast("B"), np.frombuffer(data_offsets, np.int32)
    count = len(offsets) - 1
    for column in (metas, *names):
        if column is not None and len(column) != count:
            raise ValueError("columns have different lengths")
    if count < 0 or offsets[0] < 0 or offsets[-1] > len(text) or (np.diff(offsets) < 0).any():
        raise ValueError("data_offsets do not fit data")
    edges = offsets.tolist()
    values = [bytes(text[begin:end]) for begin, end in pairwise(edges)]
    if not checked and not all(map(_is_value, values)):
        return None
    columns = names_of([some(column or []) for column in names] + [None] * (len(FIELDS) - len(names)))
    return Write(RecordColumns(values, [*map(len, values)], some(metas or []), columns))


def _is_value(text: bytes) -> bool:
    """Whether this is one JSON value without insignificant white space, within the limits of a record."""
    if len(text) > MAX_RECORD_BYTES:
        return False
    try:
        require_utf8(text)
        check_depth(text)
        return len(compact(text)) == len(text) == len(_decode_raw(text))
    except (ApiError, *UNDECODABLE):
        return False


# --- encode -------------------------------------------------------------------------------------------------


class Rows:
    """Rendered rows, and the payload of the Append frame that holds them."""

    def __init__(
        self, columns: RecordColumns, size: int, first_seq: int, ts: int, hops: bytes | None
    ) -> None:
        self.count = len(columns.values)
        self.size = size
        self.first_seq = first_seq
        self.ts = ts
        self.hops = hops
        self.names = columns.names
        text = render_rows(columns.values, first_seq, ts, columns.names, columns.metas)
        self.text: bytes | memoryview = text
        parts = [b"", text, array("I", columns.data_lens).tobytes()]
        self.flags, first_bytes = 0, 0
        if columns.metas is not None:
            self.flags |= HAS_META
            parts.append(array("I", [len(meta or b"") for meta in columns.metas]).tobytes())
        if hops is not None:
            self.flags |= HAS_HOPS
            parts.append(hops)
        for field, column in zip(FIELDS, columns.names, strict=False):
            if column is not None:
                self.flags |= field.flag
                parts.append(_pack(column))
                if field is FIELDS[0]:
                    first_bytes = len(parts[-1])
        parts[0] = _HEAD.pack(len(text), first_bytes)
        self.data_lens = parts[2]
        self.meta_lens = parts[3] if columns.metas is not None else None
        self.payload = b"".join(parts)

    @cached_property
    def ends(self) -> bytes:
        if self.count == 1:
            return _END.pack(len(self.text))
        # Newlines separate rows and never occur inside of one.
        newlines = np.flatnonzero(np.frombuffer(self.text, np.uint8) == 10)
        return (newlines + 1).astype(np.uint32).tobytes()


def encode(writes: list[Write], first_seq: int, ts: int, hops: bytes | None = None) -> Rows:
    """Render the records of these writes as consecutive rows."""
    columns = writes[0].columns if len(writes) == 1 else joined([write.columns for write in writes])
    if hops is not None and len(hops) != len(columns.values):
        raise ValueError("hops has one byte for each record")
    if not (0 <= first_seq <= MAX_SEQ and 0 <= ts <= MAX_SEQ):
        raise OverflowError("seqs and times have 63 bits")
    return Rows(columns, sum(write.size for write in writes), first_seq, ts, hops)

"""A write request, decoded once and rendered once.

Payloads stay bytes from the socket to the disk: `data` and `meta` are kept as the JSON text they arrived in,
with insignificant white space removed, so numbers, duplicate keys and key order come back as written.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeGuard

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from topics.log.write.idempotency import checked_key
from topics.storage import rows as row_text
from topics.values.config import parse_config
from topics.values.errors import ApiError, invalid
from topics.values.settings import (
    MAX_BATCH_RECORDS,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_TAG_BYTES,
)
from topics.values.utf8 import require_utf8

# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
MANY_KEYS_BYTES = MAX_META_KEYS * 5


# What a key that was not sent leaves behind; `Raw` that was sent is never empty.
_NOTHING = Raw(b"")


class Line(msgspec.Struct, gc=False):
    """One record, first as it arrives, then, stamped, as every reader will receive it.

    Key order is the order of the wire, and what is unset is not rendered. What a client sends under a name
    that is the server's (`$seq`, `$ts`, `$node`) is overwritten or dropped; `tag` and `node` are taken out
    before rendering.
    """

    seq: Any = msgspec.field(default=UNSET, name=row_text.SEQ)
    ts: Any = msgspec.field(default=UNSET, name=row_text.TS)
    origin: Any = msgspec.field(default=UNSET, name=row_text.NODE)
    data: Raw = msgspec.field(default=_NOTHING)
    meta: Raw | UnsetType = UNSET
    tag: str | UnsetType | None = UNSET
    node: str | UnsetType | None = UNSET


class PlainLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record of nothing but data, as most are; whatever else a client may send is not a plain record."""

    seq: Any = msgspec.field(default=UNSET, name=row_text.SEQ)
    ts: Any = msgspec.field(default=UNSET, name=row_text.TS)
    data: Raw = msgspec.field(default=_NOTHING)


class _Request(msgspec.Struct, gc=False):
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: Raw = msgspec.field(default=_NOTHING)
    disable_backpressure: bool = False


class AppendBody(_Request, gc=False):
    records: list[Line] | UnsetType = UNSET


class PlainBody(_Request, gc=False):
    records: list[PlainLine] | UnsetType = UNSET


class _Patience(msgspec.Struct, gc=False):
    disable_backpressure: bool = False


class _Records(msgspec.Struct, gc=False):
    records: list[Raw] = []


_decode = msgspec.json.Decoder(AppendBody).decode
_decode_plain = msgspec.json.Decoder(PlainBody).decode
_decode_patience = msgspec.json.Decoder(_Patience).decode
_decode_records = msgspec.json.Decoder(_Records).decode
_meta_decoder = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()
_encode_lines = _encoder.encode_lines
_NULL = b"null"


class Batch:
    """Records ready to be given seqs: everything about them is checked, nothing is assigned."""

    __slots__ = ("_lines", "count", "data_lens", "ends", "meta_lens", "nodes", "size", "tags")

    def __init__(
        self,
        lines: list[Line] | list[PlainLine],
        data_lens: Sequence[int],
        meta_lens: Sequence[int] | None = None,
        nodes: list[str | None] | None = None,
        tags: list[str | None] | None = None,
    ) -> None:
        self._lines = lines
        self.count = len(lines)
        # As the journal and the columns in memory want them.
        self.data_lens = array("I", data_lens)
        self.meta_lens = meta_lens
        self.nodes = nodes
        self.tags = tags
        self.size = sum(data_lens) + (sum(meta_lens) if meta_lens is not None else 0)
        # Where each row ends, once somebody who stores the same rows in many places has looked.
        self.ends: np.ndarray | None = None

    def render(self, first_seq: int, ts: int) -> bytes:
        """The records as every reader will receive them, a line each."""
        self.ends = None
        if (
            self.count >= row_text.FEWEST_ROWS
            and first_seq >= row_text.LOWEST_SEQ
            and self.meta_lens is None
            and self.nodes is None
        ):
            return row_text.plain_rows([line.data for line in self._lines], first_seq, ts)
        seq = first_seq
        for line in self._lines:
            line.seq = seq
            line.ts = ts
            seq += 1
        return _encode_lines(self._lines)

    def row_ends(self, rows: bytes) -> np.ndarray:
        """Where each row ends."""
        if self.count > 1 and self.meta_lens is None and self.nodes is None:
            # Around its data every row has the same text, but for the digits of its seq, and those only grow:
            # as many in the last row as in the first means as many in all. Adding beats looking for newlines.
            data_lens = np.frombuffer(self.data_lens, np.uint32)
            around = rows.index(b"\n") + 1 - self.data_lens[0]
            last = len(rows) - 1 - rows.rindex(b"\n", 0, -1) - self.data_lens[-1]
            if around == last:
                return np.cumsum(data_lens + np.uint32(around), dtype=np.uint32)
        return row_ends(rows, self.count)


def row_ends(rows: bytes | memoryview, count: int) -> np.ndarray:
    """Where each row ends. Newlines separate rows and never occur inside one."""
    if count == 1:
        return np.array([len(rows)], np.uint32)
    return (np.flatnonzero(np.frombuffer(rows, np.uint8) == 10) + 1).astype(np.uint32)


class AppendRequest:
    __slots__ = ("backpressure", "batch", "config", "create", "idempotency_key")

    def __init__(self, batch: Batch, request: _Request) -> None:
        self.batch = batch
        self.idempotency_key = request.idempotency_key
        self.create = request.create
        # Judged even when the topic exists already and the config is without effect.
        config = request.config
        self.config = None if not len(config) or bytes(config) == _NULL else parse_config(config)
        self.backpressure = not request.disable_backpressure


def column_request(batch: Batch, *, create: bool | None, idempotency_key: str | None) -> AppendRequest:
    """A write whose records did not arrive as JSON."""
    return AppendRequest(batch, _Request(create=create, idempotency_key=idempotency_key))


def parse_append(body: bytes, key_header: bytes | None = None) -> AppendRequest:
    """Decode and check a write. Raises `ApiError`; has no effect on anything.

    `key_header` is the idempotency key to use when the body names none.
    """
    return check_append(decode_append(body), len(body), key_header)


def decode_append(body: bytes) -> PlainBody | AppendBody:
    """Plain records are decoded faster, and need not be asked one by one what else they carry."""
    try:
        body = compact_json(body)
        try:
            request = _decode_plain(body)
        except msgspec.ValidationError:
            # Not all of them plain, or something is wrong: the other decoder can tell.
            return _decode(body)
        return request if request.node is None else _decode(body)
    except msgspec.ValidationError as error:
        raise _too_many() if _count_records(body) > MAX_BATCH_RECORDS else invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"body is not valid JSON: {error}") from None


def _count_records(body: bytes) -> int:
    """How many there are, whatever is wrong with one of them: too many is said first."""
    try:
        return len(_decode_records(body).records)
    except (msgspec.DecodeError, RecursionError):
        return 0  # the mistake that was found first may not be the only one


def _too_many() -> ApiError:
    return ApiError("batch_too_large", f"at most {MAX_BATCH_RECORDS} records fit in one write")


def disables_backpressure(body: bytes) -> bool:
    """Whether a write asks not to be refused because of load; what is no write at all does not."""
    # Nearly none does, and looking for the name costs less than decoding.
    if b"disable_backpressure" not in body:
        return False
    try:
        return _decode_patience(body).disable_backpressure
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def lone_record(request: PlainBody | AppendBody) -> PlainLine | None:
    """The record of a write that consists of one plain record and asks for nothing else.

    Its size is the caller's business.
    """
    if type(request) is PlainBody:
        records = request.records
        if (
            records is not UNSET
            and len(records) == 1
            and request.idempotency_key is None
            and request.create is None
            and not request.disable_backpressure
            and request.config is _NOTHING
            and records[0].data is not _NOTHING
        ):
            return records[0]
    return None


def plain_batch(lines: list[PlainLine]) -> Batch:
    """Records that `lone_record` has judged."""
    return Batch(lines, [len(line.data) for line in lines])


def check_append(request: PlainBody | AppendBody, body_size: int, key_header: bytes | None) -> AppendRequest:
    records = request.records
    if records is UNSET or not records:
        raise invalid("records must be an array of 1 to 10000 records")
    if len(records) > MAX_BATCH_RECORDS:
        raise _too_many()
    if key_header is not None or request.idempotency_key is not None:
        request.idempotency_key = checked_key(request.idempotency_key, key_header)
    return AppendRequest(_check_records(records, request.node, body_size), request)


def compact_json(body: bytes) -> bytes:
    """The same JSON without insignificant white space; payload text is not otherwise touched."""
    if not body.isascii():
        require_utf8(body)
    # Asked by byte value: four times faster than by one-byte string.
    if 32 in body or 10 in body or 9 in body or 13 in body:
        try:
            return msgspec.json.format(body, indent=-1)
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid(f"body is not valid JSON: {error}") from None
    return body


def _check_records(records: list[Line] | list[PlainLine], batch_node: str | None, body_size: int) -> Batch:
    data_lens = [len(record.data) for record in records]
    # Raw data is never empty, so a zero means the key was missing.
    if 0 in data_lens or (body_size > MAX_RECORD_BYTES and max(data_lens) > MAX_RECORD_BYTES):
        raise _first_refusal(records, batch_node, data_lens)
    if _may_have_details(records):
        return _check_details(records, batch_node, data_lens)
    return Batch(records, data_lens)


def _first_refusal(
    records: list[Line] | list[PlainLine], batch_node: str | None, data_lens: list[int]
) -> ApiError:
    """The first record that is refused tells why, whatever is wrong with later ones."""
    bad = next(i for i, size in enumerate(data_lens) if not 0 < size <= MAX_RECORD_BYTES)
    if bad and _may_have_details(records):
        _check_details(records[:bad], batch_node, data_lens[:bad])
    return _too_large(bad) if data_lens[bad] else invalid(f"records[{bad}]: data is required")


def _may_have_details(records: list[Line] | list[PlainLine]) -> TypeGuard[list[Line]]:
    return type(records[0]) is Line


def _check_details(records: list[Line], batch_node: str | None, data_lens: list[int]) -> Batch:
    """Tags, nodes and metas: checked, taken out of the records, and put in the columns of the batch."""
    if batch_node is not None:
        _check_node(batch_node, "node")
    meta_lens: list[int] = []
    nodes: list[str | None] = []
    tags: list[str | None] = []
    for index, record in enumerate(records):
        tag, node, meta_len = record.tag, record.node, 0
        if tag is UNSET:
            tag = None
        elif tag is not None and len(tag) > 64 and len(tag.encode()) > MAX_TAG_BYTES:
            raise invalid(f"records[{index}].tag must be at most {MAX_TAG_BYTES} bytes")
        if node is UNSET or node is None:
            node = batch_node
        else:
            _check_node(node, f"records[{index}].node")
        if record.meta is not UNSET:
            meta_len = _check_meta(record.meta, index)
            if not meta_len:
                record.meta = UNSET
            elif data_lens[index] + meta_len > MAX_RECORD_BYTES:
                raise _too_large(index)
        record.origin = UNSET if node is None else node
        record.tag = record.node = UNSET
        meta_lens.append(meta_len)
        nodes.append(node)
        tags.append(tag)
    return Batch(
        records,
        data_lens,
        meta_lens if any(meta_lens) else None,
        nodes if nodes.count(None) != len(nodes) else None,
        tags if tags.count(None) != len(tags) else None,
    )


def batch_from_columns(
    data: list[bytes],
    metas: list[bytes | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
) -> Batch:
    """Records that are already compact JSON and already checked (copies, dead letters, bulk appends)."""
    lines = [
        Line(
            origin=UNSET if nodes is None or nodes[i] is None else nodes[i],
            data=Raw(value),
            meta=UNSET if metas is None or (meta := metas[i]) is None else Raw(meta),
        )
        for i, value in enumerate(data)
    ]
    meta_lens = None if metas is None else [0 if meta is None else len(meta) for meta in metas]
    return Batch(
        lines,
        [len(value) for value in data],
        meta_lens if meta_lens is not None and any(meta_lens) else None,
        nodes if nodes is not None and any(node is not None for node in nodes) else None,
        tags if tags is not None and any(tag is not None for tag in tags) else None,
    )


def _check_node(node: str, what: str) -> None:
    if len(node) > 32 and len(node.encode()) > MAX_NODE_BYTES:
        raise invalid(f"{what} must be at most {MAX_NODE_BYTES} bytes")


def _check_meta(meta: Raw, index: int) -> int:
    """Length of the meta, or 0 when it is null and so counts as absent."""
    text = bytes(meta)
    size = len(text)
    if text == _NULL:
        return 0
    if text[:1] != b"{":
        raise invalid(f"records[{index}].meta must be an object")
    if size > MAX_META_BYTES:
        raise invalid(f"records[{index}].meta must be at most {MAX_META_BYTES} bytes")
    check_meta_keys(text, f"records[{index}].meta")
    return size


def check_meta_keys(meta: bytes, what: str) -> None:
    if len(meta) > MANY_KEYS_BYTES and len(_meta_decoder.decode(meta)) > MAX_META_KEYS:
        raise invalid(f"{what} must have at most {MAX_META_KEYS} keys")


def _too_large(index: int) -> ApiError:
    return ApiError(
        "record_too_large", f"records[{index}]: data and meta together exceed {MAX_RECORD_BYTES} bytes"
    )

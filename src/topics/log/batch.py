"""A write request, decoded once and rendered once.

Payloads stay bytes from the socket to the disk: `data` and `meta` are kept as the JSON text they arrived in,
with insignificant white space removed, so numbers, duplicate keys and key order come back as written.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from topics.values.config import parse_config
from topics.values.errors import ApiError, invalid
from topics.values.settings import (
    MAX_BATCH_RECORDS,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_TAG_BYTES,
)
from topics.values.utf8 import require_utf8

# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
_META_COUNT_BYTES = MAX_META_KEYS * 5


class _Line(msgspec.Struct, gc=False):
    """The rendered record: key order is the order of the wire."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    origin: str | UnsetType = msgspec.field(default=UNSET, name="$node")
    data: Any = UNSET
    meta: Any = UNSET


class _PlainIn(msgspec.Struct, gc=False):
    """A record without tag, node or meta: decoded and rendered through the same object."""

    seq: Any = msgspec.field(default=UNSET, name="$seq")
    ts: Any = msgspec.field(default=UNSET, name="$ts")
    data: Raw = msgspec.field(default=Raw(b""))


class _RecordIn(msgspec.Struct, gc=False):
    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw = msgspec.field(default=Raw(b""))


class _Request(msgspec.Struct, gc=False):
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: Raw = msgspec.field(default=Raw(b""))
    disable_backpressure: bool = False


class _PlainRequest(_Request, gc=False):
    records: list[_PlainIn] | UnsetType = UNSET


class _FullRequest(_Request, gc=False):
    records: list[_RecordIn] | UnsetType = UNSET


_plain_decoder = msgspec.json.Decoder(_PlainRequest)
_full_decoder = msgspec.json.Decoder(_FullRequest)
_meta_decoder = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()
_encode_lines = _encoder.encode_lines
_NULL = b"null"


class Batch:
    """Records ready to be given seqs: everything about them is checked, nothing is assigned."""

    __slots__ = ("_lines", "count", "data_lens", "meta_lens", "nodes", "size", "tags")

    def __init__(
        self,
        lines: list[Any],
        data_lens: list[int],
        meta_lens: list[int] | None = None,
        nodes: list[str | None] | None = None,
        tags: list[str | None] | None = None,
    ) -> None:
        self._lines = lines
        self.count = len(lines)
        self.data_lens = data_lens
        self.meta_lens = meta_lens
        self.nodes = nodes
        self.tags = tags
        self.size = sum(data_lens) + (sum(meta_lens) if meta_lens is not None else 0)

    def render(self, first_seq: int, ts: int) -> bytes:
        """The records as every reader will receive them, a line each."""
        seq = first_seq
        for line in self._lines:
            line.seq = seq
            line.ts = ts
            seq += 1
        return _encode_lines(self._lines)


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
        self.config = None if bytes(request.config) in (b"", _NULL) else parse_config(request.config)
        self.backpressure = not request.disable_backpressure


def parse_append(body: bytes) -> AppendRequest:
    """Decode and check a write. Raises `ApiError`; has no effect on anything."""
    compact = compact_json(body)
    # Keys cannot hide behind escapes when there is no backslash: then a plain search decides which
    # shape the records have, and the common shape skips all per-record work.
    plain = (
        b'"meta"' not in compact
        and b'"tag"' not in compact
        and b'"node"' not in compact
        and b"\\" not in compact
    )
    try:
        request: _PlainRequest | _FullRequest = (
            _plain_decoder.decode(compact) if plain else _full_decoder.decode(compact)
        )
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"body is not valid JSON: {error}") from None
    records = request.records
    if records is UNSET or not records:
        raise invalid("records must be an array of 1 to 10000 records")
    if len(records) > MAX_BATCH_RECORDS:
        raise ApiError("batch_too_large", f"at most {MAX_BATCH_RECORDS} records fit in one write")
    key = request.idempotency_key
    if key is not None and len(key.encode()) > MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"idempotency_key must be at most {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
    batch = _plain_batch(records, compact) if plain else _full_batch(records, request.node)  # type: ignore[arg-type]
    return AppendRequest(batch, request)


def compact_json(body: bytes) -> bytes:
    """The same JSON without insignificant white space; payload text is not otherwise touched."""
    require_utf8(body)
    if b" " in body or b"\n" in body or b"\t" in body or b"\r" in body:
        try:
            return msgspec.json.format(body, indent=-1)
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid(f"body is not valid JSON: {error}") from None
    return body


def _plain_batch(records: list[_PlainIn], body: bytes) -> Batch:
    data_lens = [len(record.data) for record in records]
    # Raw data is never empty, so a zero means the key was missing.
    if 0 in data_lens:
        raise invalid(f"records[{data_lens.index(0)}]: data is required")
    if len(body) > MAX_RECORD_BYTES:
        for index, size in enumerate(data_lens):
            if size > MAX_RECORD_BYTES:
                raise _too_large(index)
    return Batch(records, data_lens)


def _full_batch(records: list[_RecordIn], batch_node: str | None) -> Batch:
    if batch_node is not None:
        _check_node(batch_node, "node")
    lines: list[_Line] = []
    data_lens: list[int] = []
    meta_lens: list[int] = []
    nodes: list[str | None] = []
    tags: list[str | None] = []
    for index, record in enumerate(records):
        tag, node, meta = record.tag, record.node, record.meta
        if tag is not None and len(tag) > 64 and len(tag.encode()) > MAX_TAG_BYTES:
            raise invalid(f"records[{index}].tag must be at most {MAX_TAG_BYTES} bytes")
        if node is None:
            node = batch_node
        else:
            _check_node(node, f"records[{index}].node")
        meta_len = len(meta)
        if meta_len:
            meta_len = _check_meta(meta, meta_len, index)
        data_len = len(record.data)
        if data_len + meta_len > MAX_RECORD_BYTES:
            raise _too_large(index)
        lines.append(_Line(0, 0, UNSET if node is None else node, record.data, meta if meta_len else UNSET))
        data_lens.append(data_len)
        meta_lens.append(meta_len)
        nodes.append(node)
        tags.append(tag)
    return Batch(
        lines,
        data_lens,
        meta_lens if any(meta_lens) else None,
        nodes if any(node is not None for node in nodes) else None,
        tags if any(tag is not None for tag in tags) else None,
    )


def batch_from_columns(
    data: list[bytes],
    metas: list[bytes | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
) -> Batch:
    """Records that are already compact JSON and already checked (copies, dead letters, bulk appends)."""
    lines = [
        _Line(
            0,
            0,
            UNSET if nodes is None or nodes[i] is None else nodes[i],  # type: ignore[arg-type]
            Raw(value),
            UNSET if metas is None or metas[i] is None else Raw(metas[i]),  # type: ignore[arg-type]
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


def _check_meta(meta: Raw, size: int, index: int) -> int:
    """Length of the meta, or 0 when it is null and so counts as absent."""
    text = bytes(meta)
    if text == _NULL:
        return 0
    if text[:1] != b"{":
        raise invalid(f"records[{index}].meta must be an object")
    if size > MAX_META_BYTES:
        raise invalid(f"records[{index}].meta must be at most {MAX_META_BYTES} bytes")
    if size > _META_COUNT_BYTES and len(_meta_decoder.decode(text)) > MAX_META_KEYS:
        raise invalid(f"records[{index}].meta must have at most {MAX_META_KEYS} keys")
    return size


def _too_large(index: int) -> ApiError:
    return ApiError(
        "record_too_large", f"records[{index}]: data and meta together exceed {MAX_RECORD_BYTES} bytes"
    )

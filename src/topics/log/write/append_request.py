"""A write request, checked in full: what it asks for, and every record in it.

The rules that a single plain record cannot break are asked in `append_form` alone: most writes end there.
"""

from typing import TypeGuard

import msgspec
from msgspec import UNSET, Raw

from topics.log.write.append_form import (
    AppendBody,
    Decoded,
    Line,
    OnlyRecords,
    PlainLine,
    decode_append,
    too_many,
)
from topics.log.write.append_frame import CutBatch
from topics.log.write.batch import Batch
from topics.log.write.idempotency import checked_key
from topics.values import (
    DEFAULT_CONFIG,
    MAX_BATCH_RECORDS,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_TAG_BYTES,
    UNDECODABLE,
    ApiError,
    invalid,
    resolve_config,
)
from topics.values.accelerator import MANY_KEYS_BYTES, Records

_NULL = b"null"


class _Patience(msgspec.Struct, gc=False):
    disable_backpressure: bool = False


_decode_patience = msgspec.json.Decoder(_Patience).decode
_decode_meta = msgspec.json.Decoder(dict[str, Raw]).decode


class AppendRequest:
    __slots__ = ("batch", "config", "create", "idempotency_key", "return_seqs")

    def __init__(self, batch: Batch, request: AppendBody, idempotency_key: bytes | None) -> None:
        self.batch = batch
        self.idempotency_key = idempotency_key
        self.create = request.create
        self.return_seqs = request.return_seqs
        # Judged even when the topic exists already and the config is without effect.
        self.config = None if request.config is None else resolve_config(request.config)

    @property
    def may_create(self) -> bool:
        """Whether its topic is made where there is none."""
        return (self.config or DEFAULT_CONFIG).auto_create if self.create is None else self.create


def column_request(batch: Batch, *, create: bool | None, idempotency_key: bytes | None) -> AppendRequest:
    """A write whose records did not arrive as JSON."""
    return AppendRequest(batch, AppendBody(create=create), idempotency_key)


def parse_append(body: bytes, key_header: bytes | None = None) -> AppendRequest:
    """Decode and check a write. Raises `ApiError`; has no effect on anything.

    `key_header` is the idempotency key to use when the body names none.
    """
    return check_append(decode_append(body), len(body), key_header)


def disables_backpressure(body: bytes) -> bool:
    """Whether a write asks not to be refused because of load; what is no write at all does not."""
    # Nearly none does, and looking for the name costs less than decoding.
    if b"disable_backpressure" not in body:
        return False
    try:
        return _decode_patience(body).disable_backpressure
    except UNDECODABLE:
        return False


def check_append(
    request: AppendBody | OnlyRecords, body_size: int, key_header: bytes | None
) -> AppendRequest:
    if isinstance(request, (list, Records)):
        request = AppendBody(records=request)
    records = request.records
    if records is UNSET or not records:
        raise invalid("records must be an array of 1 to 10000 records")
    if not isinstance(records, Records) and len(records) > MAX_BATCH_RECORDS:
        raise too_many()
    key = None
    if key_header is not None or request.idempotency_key is not None:
        key = checked_key(request.idempotency_key, key_header)
    return AppendRequest(_check_records(records, request.node, body_size), request, key)


def _check_records(records: Decoded, batch_node: str | None, body_size: int) -> Batch:
    if isinstance(records, Records):
        return CutBatch(records)  # what the accelerator has cut out is checked
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
    return record_too_large(bad) if data_lens[bad] else invalid(f"records[{bad}]: data is required")


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
                raise record_too_large(index)
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
    if len(meta) > MANY_KEYS_BYTES and len(_decode_meta(meta)) > MAX_META_KEYS:
        raise invalid(f"{what} must have at most {MAX_META_KEYS} keys")


def record_too_large(index: int) -> ApiError:
    return ApiError(
        "record_too_large", f"records[{index}]: data and meta together exceed {MAX_RECORD_BYTES} bytes"
    )

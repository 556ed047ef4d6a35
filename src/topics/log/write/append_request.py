"""A write request, checked in full: what it asks for, and every record in it.

The rules that a single plain record cannot break are asked in `append_form` alone: most writes end there.
"""

from typing import TypeGuard

import msgspec
from msgspec import UNSET, Raw

from topics.log.write.append_form import (
    SHORT_NODE,
    SHORT_TAG,
    AppendBody,
    Decoded,
    Line,
    Lines,
    NamedLine,
    OnlyRecords,
    PlainLine,
    decode_append,
    too_many,
)
from topics.log.write.append_frame import CutBatch
from topics.log.write.batch import Batch, batch_from_columns
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

_NULL = Raw(b"null")


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
    return AppendRequest(check_records(records, request.node, body_size), request, key)


def check_records(records: Decoded, batch_node: str | None, body_size: int) -> Batch:
    if isinstance(records, Records):
        return CutBatch(records)  # what the accelerator has cut out is checked
    values = [record.data for record in records]
    data_lens = list(map(len, values))
    # Raw data is never empty, so a zero means the key was missing.
    if 0 in data_lens or (body_size > MAX_RECORD_BYTES and max(data_lens) > MAX_RECORD_BYTES):
        raise _first_refusal(records, batch_node, data_lens)
    if not _may_have_names(records):
        return Batch(values, data_lens)
    _check_batch_node(batch_node)
    metas = None
    if _may_be_refused(records):
        _check_details(records, data_lens)
        # Null counts as absent.
        metas = [meta if (meta := record.meta) and meta != _NULL else None for record in records]
    nodes = [record.node for record in records]
    if batch_node is not None:
        nodes = [batch_node if node is None else node for node in nodes]
    return batch_from_columns(values, metas, nodes, [record.tag for record in records], data_lens)


def _first_refusal(records: Lines, batch_node: str | None, data_lens: list[int]) -> ApiError:
    """The first record that is refused tells why, whatever is wrong with later ones."""
    bad = next(i for i, size in enumerate(data_lens) if not 0 < size <= MAX_RECORD_BYTES)
    if bad and _may_have_names(records):
        _check_batch_node(batch_node)
        if _may_be_refused(records):
            _check_details(records[:bad], data_lens)
    return record_too_large(bad) if data_lens[bad] else invalid(f"records[{bad}]: data is required")


def _may_have_names(records: Lines) -> TypeGuard[list[NamedLine] | list[Line]]:
    return type(records[0]) is not PlainLine


def _may_be_refused(records: list[NamedLine] | list[Line]) -> TypeGuard[list[Line]]:
    return type(records[0]) is Line


def _check_batch_node(node: str | None) -> None:
    if node is not None:
        _check_node(node, "node")


def _check_details(records: list[Line], data_lens: list[int]) -> None:
    """Raises what the first record is refused for that has a tag, node or meta that it may not have."""
    for index, record in enumerate(records):
        tag, node = record.tag, record.node
        if tag is not None and len(tag) > SHORT_TAG and len(tag.encode()) > MAX_TAG_BYTES:
            raise invalid(f"records[{index}].tag must be at most {MAX_TAG_BYTES} bytes")
        if node is not None:
            _check_node(node, f"records[{index}].node")
        if record.meta and data_lens[index] + _check_meta(record.meta, index) > MAX_RECORD_BYTES:
            raise record_too_large(index)


def _check_node(node: str, what: str) -> None:
    if len(node) > SHORT_NODE and len(node.encode()) > MAX_NODE_BYTES:
        raise invalid(f"{what} must be at most {MAX_NODE_BYTES} bytes")


def _check_meta(meta: Raw, index: int) -> int:
    """Length of the meta, or 0 when it is null and so counts as absent."""
    if meta == _NULL:
        return 0
    text = bytes(meta)
    size = len(text)
    if text[:1] != b"{":
        raise invalid(f"records[{index}].meta must be an object")
    if size > MAX_META_BYTES:
        raise invalid(f"records[{index}].meta must be at most {MAX_META_BYTES} bytes")
    check_meta_keys(text, f"records[{index}].meta")
    return size


def check_meta_keys(meta: bytes, what: str) -> None:
    if len(meta) <= MANY_KEYS_BYTES:
        return
    try:
        count = len(_decode_meta(meta))
    except RecursionError:
        raise invalid(f"{what} is nested too deeply") from None
    if count > MAX_META_KEYS:
        raise invalid(f"{what} must have at most {MAX_META_KEYS} keys")


def record_too_large(index: int) -> ApiError:
    return ApiError(
        "record_too_large", f"records[{index}]: data and meta together exceed {MAX_RECORD_BYTES} bytes"
    )

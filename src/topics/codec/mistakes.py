"""The first mistake in an append request, in words."""

import re

import msgspec
from msgspec import Raw

from topics.codec.append_body import (
    RECORD_LIMITS,
    AppendBody,
    PublishBody,
    RecordColumns,
    check_depth,
    checked_columns,
    joined,
    no_records,
    too_many,
)
from topics.codec.large_json import LARGE_BYTES, Cut, cut_out
from topics.codec.python import Options, Write, compact, decode_options
from topics.core import (
    MAX_BATCH_RECORDS,
    MAX_IDEMPOTENCY_KEY_BYTES,
    UNDECODABLE,
    ApiError,
    Note,
    StrictDecoder,
    invalid,
    require_utf8,
)
from topics.core import explain as explain_names


class _ExplainedRecords(msgspec.Struct, gc=False):
    records: list[Raw] = []


_DECODERS: dict[bool, StrictDecoder[AppendBody]] = {
    False: StrictDecoder(AppendBody),
    True: StrictDecoder(PublishBody),
}
_decode_records = msgspec.json.Decoder(_ExplainedRecords).decode
_INDEX = re.compile(r"records\[(\d+)\]")
_encode = msgspec.json.encode


def explain(body: bytes, note: Note, *, key: bytes | None = None, publish: bool = False) -> Write:
    """The write in a body; raises `ApiError` for the first mistake.

    `note` is told of unknown and duplicate names. If it does not raise, these are left out. `key` is the
    idempotency key of the request if the body has none.
    """
    if len(body) > LARGE_BYTES:
        return _large_write(cut_out(body, "records", RECORD_LIMITS), note, key, publish)
    require_utf8(body)
    request, options = _decode(body, note, publish)
    _require_records(request)
    _check_key(request, key)
    return Write(_columns(request), options)


def _large_write(cut: Cut, note: Note, key: bytes | None, publish: bool) -> Write:
    """Decode in steps that release the interpreter lock in between."""
    require_utf8(cut.around)
    request, options = _decode(cut.around, note, publish)
    if cut.too_many is not None:
        raise cut.too_many
    if not cut.pieces and cut.too_large is None:
        _require_records(request)
    _check_key(request, key)
    parts, first = [], 0
    begins = b'{"records":[' if request.node is None else b'{"node":%b,"records":[' % _encode(request.node)
    for items, count in cut.pieces:
        text = begins + items + b"]}"
        try:
            require_utf8(text)
            piece, _ = _decode(text, note, publish)
            parts.append(_columns(piece))
        except ApiError as error:
            raise _shifted(error, first) from None
        if len(parts[-1].values) != count:
            raise invalid("body is not valid JSON: trailing comma in array")
        first += count
    if cut.too_large is not None:
        raise cut.too_large
    return Write(joined(parts), options)


def _shifted(error: ApiError, first: int) -> ApiError:
    """The error of a piece whose first record has this index."""
    message = _INDEX.sub(lambda found: f"records[{int(found[1]) + first}]", error.message)
    return ApiError(error.code, message, error.detail)


def _decode(body: bytes, note: Note, publish: bool) -> tuple[AppendBody, Options]:
    decoder = _DECODERS[publish]
    try:
        text = compact(body)
        options = decode_options(text, publish)
        if not options.config:
            return decoder.decode_checked(text), options
    except (ApiError, *UNDECODABLE):
        pass
    # Only now the names are looked at one by one. In a record, a duplicate name alone is no mistake.
    text = explain_names(body, decoder).tell(note)
    if _count_records(text) > MAX_BATCH_RECORDS:
        raise too_many()
    request = decoder.decode_checked(text)
    return request, decode_options(text, publish)


def _count_records(text: bytes) -> int:
    """The number of records; 0 if they cannot be counted, because the decoder then finds another mistake."""
    try:
        return len(_decode_records(text).records)
    except UNDECODABLE:
        return 0


def _require_records(request: AppendBody) -> None:
    if not isinstance(request.records, list) or not request.records:
        raise no_records()
    if len(request.records) > MAX_BATCH_RECORDS:
        raise too_many()


def _check_key(request: AppendBody, key: bytes | None) -> None:
    if request.idempotency_key is not None:
        key = request.idempotency_key.encode()
    if key is not None and len(key) > MAX_IDEMPOTENCY_KEY_BYTES:
        raise invalid(f"idempotency_key must be at most {MAX_IDEMPOTENCY_KEY_BYTES} bytes")


def _columns(request: AppendBody) -> RecordColumns:
    assert isinstance(request.records, list)
    lines = request.records
    for line in lines:
        check_depth(line.data)
        check_depth(line.meta)
    return checked_columns(lines, request.node)

"""What a write may say: its body, decoded once.

Payloads stay bytes from the socket to the disk: `data` and `meta` are kept as the JSON text they arrived in,
with insignificant white space removed, so numbers, duplicate keys and key order come back as written.
"""

from typing import TYPE_CHECKING, Annotated, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from topics.values import (
    MAX_BATCH_RECORDS,
    MAX_NODE_BYTES,
    MAX_TAG_BYTES,
    UNDECODABLE,
    ApiError,
    ConfigBody,
    Form,
    Misnamed,
    Note,
    accelerator,
    invalid,
    require_utf8,
)
from topics.values.accelerator import Records

# In no encoding do so few characters take more bytes than a tag, or a node, may have.
SHORT_TAG, SHORT_NODE = MAX_TAG_BYTES // 4, MAX_NODE_BYTES // 4
# What a key that was not sent leaves behind; `Raw` that was sent is never empty.
_NOTHING = Raw(b"")


class PlainLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record of nothing but data, as most are; whatever else a client may send is not a plain record."""

    data: Raw = _NOTHING


class NamedLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record that may have a tag and a node as well. They are so short that neither can be refused."""

    data: Raw = _NOTHING
    tag: Annotated[str, Meta(max_length=SHORT_TAG)] | None = None
    node: Annotated[str, Meta(max_length=SHORT_NODE)] | None = None


class Line(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Any record."""

    data: Raw = _NOTHING
    meta: Raw = _NOTHING
    tag: str | None = None
    node: str | None = None


# As most fit; a list is never a mixture.
Lines: TypeAlias = list[PlainLine] | list[NamedLine] | list[Line]
if TYPE_CHECKING:
    Decoded: TypeAlias = Lines | Records
else:
    Decoded = list[Line]  # others are put in their place


class AppendBody(msgspec.Struct, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A write. Where all records are plain, or named, they are decoded as such."""

    records: Decoded | UnsetType = UNSET
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False
    return_seqs: bool = True


class _Records(msgspec.Struct, gc=False):
    records: list[Raw] = []


Write = TypeVar("Write", bound=AppendBody)
# Records without anything around them: decoded, or cut out by the accelerator.
OnlyRecords: TypeAlias = list[PlainLine] | Records

_decode_plain = msgspec.json.Decoder(list[PlainLine]).decode
_decode_named = msgspec.json.Decoder(list[NamedLine]).decode
_decode_any = msgspec.json.Decoder(list[Line]).decode
_decode_key = msgspec.json.Decoder(str).decode
_decode_records = msgspec.json.Decoder(_Records).decode
# How a write of nothing but records begins and ends, and how its records begin in any other.
_ONLY_BEGINS, _ONLY_ENDS = b'{"records":[', b"}]}"
_RECORDS = b'"records":'
# Up to here, a piece of a body is copied sooner than it is viewed.
_SHORT_BYTES = 4096
# A write of records and a key, behind them or before them.
_KEY_FOLLOWS, _BRACE = b'],"idempotency_key":', ord("}")
_KEY_BEGINS, _RECORDS_FOLLOW = b'{"idempotency_key":"', b'","records":['


class AppendForm(Generic[Write]):
    """The form of a write, which may say more than an `AppendBody`.

    Its records are cut out and decoded by themselves. What is left is short, so that it costs little to make
    sure that no name comes twice.
    """

    def __init__(self, kind: type[Write]) -> None:
        self._kind = kind
        self._form = Form(kind)

    def decode(self, body: bytes, note: Note = Misnamed.refuse) -> Write | OnlyRecords:
        """Just the records, if they are plain and there is nothing else.

        `note` is told of names that do not belong, or come twice; inside of records only of the first.
        """
        if not body.isascii():
            require_utf8(body)
        if body[:12] == _ONLY_BEGINS and body[-3:] == _ONLY_ENDS:
            # Before anything else: blanks inside of strings are no reason to look at all of it again.
            found = _cut(body, 11, len(body) - 1)
            if found is not None:
                return found
        text, body = body, compact_json(body)
        was_spaced = body is not text
        request: Write | None = None
        try:
            if body[:12] == _ONLY_BEGINS and body[-3:] == _ONLY_ENDS:
                if was_spaced and (found := _cut(body, 11, len(body) - 1)) is not None:
                    return found
                # If anything else stood between the brackets, it would not be one array.
                records = body[11:-1] if len(body) <= _SHORT_BYTES else memoryview(body)[11:-1]
                try:
                    return _decode_plain(records)
                except msgspec.ValidationError:
                    # Not all of them plain, or something is wrong: other decoders can tell.
                    return self._kind(records=_decode_lines(records))
            request = self._decode_in_parts(body)
        except UNDECODABLE:
            pass
        return self._decode_carefully(body, note) if request is None else request

    def _decode_in_parts(self, body: bytes) -> Write | None:
        """None, if it does not come apart that easily."""
        start, stop = body.find(_RECORDS) + len(_RECORDS), body.rfind(b"]") + 1
        around = body[:start] + b"[]" + body[stop:]
        # If this is a write, then its records stood where now the brackets are, or nothing of the kind did.
        request = self._form.fitting(around)
        if request is None:
            return None
        found = _cut(body, start, stop)
        if found is not None and (request.node is None or found.give_node(request.node)):
            request.records = found
            return request
        records = memoryview(body)[start:stop]
        if request.node is None:
            try:
                request.records = _decode_plain(records)
                return request
            except msgspec.ValidationError:
                pass
        request.records = _decode_lines(records)
        return request

    def _decode_carefully(self, body: bytes, note: Note) -> Write:
        text = self._form.cleared(body, note)
        if _count_records(text) > MAX_BATCH_RECORDS:
            raise too_many()
        return self._form.decode(text)


decode_append = AppendForm(AppendBody).decode


def _decode_lines(records: bytes | memoryview) -> list[NamedLine] | list[Line]:
    try:
        return _decode_named(records)
    except msgspec.ValidationError:
        return _decode_any(records)


def _cut(body: bytes, start: int, stop: int) -> Records | None:
    """The records of an array in a body, if nothing is unusual about them, and there is an accelerator."""
    native = accelerator.native
    return None if native is None else native.cut(body, start, stop)


def cut_whole(body: bytes) -> Records | None:
    """The same of a body that has nothing but records, and every byte of which is ASCII."""
    if body[:12] == _ONLY_BEGINS and body[-3:] == _ONLY_ENDS and body.isascii():
        return _cut(body, 11, len(body) - 1)
    return None


def key_apart(body: bytes) -> tuple[bytes, bytes] | None:
    """A small write of records and an idempotency key: the same without the key, and that key.

    None if it does not look like one. The records are not looked at.
    """
    try:
        if body[:12] == _ONLY_BEGINS:
            key_at = body.rfind(b'"', 0, -2)
            if body[key_at - 20 : key_at] == _KEY_FOLLOWS and body[-1] == _BRACE:
                return body[: key_at - 19] + b"}", _decode_key(body[key_at:-1]).encode()
        elif body[:20] == _KEY_BEGINS:
            at = body.find(_RECORDS_FOLLOW)
            return b"{" + body[at + 2 :], _decode_key(body[19 : at + 1]).encode()
    except UNDECODABLE:
        pass
    return None


def _count_records(body: bytes) -> int:
    """How many there are, whatever is wrong with one of them: too many is said first."""
    try:
        return len(_decode_records(body).records)
    except UNDECODABLE:
        return 0  # the mistake that was found first may not be the only one


def too_many() -> ApiError:
    return ApiError("batch_too_large", f"at most {MAX_BATCH_RECORDS} records fit in one write")


def compact_json(body: bytes) -> bytes:
    """The same JSON without insignificant white space; payload text is not otherwise touched."""
    # Asked by byte value: four times faster than by one-byte string.
    if 32 in body or 10 in body or 9 in body or 13 in body:
        try:
            return msgspec.json.format(body, indent=-1)
        except UNDECODABLE as error:
            raise invalid(f"body is not valid JSON: {error}") from None
    return body

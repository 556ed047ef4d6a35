"""A batch of records: decoded once, rendered once, and put in the journal as it was rendered.

Payloads stay bytes from the socket to the disk: `data` and `meta` are kept as the JSON text they arrived in,
with insignificant white space removed, so numbers, duplicate keys and key order come back as written.

The payload of an Append frame is the rendered rows, and what cannot be read off them:

    rows length u32 | tags length u32 | rows | data lengths u32×n | [meta lengths u32×n] | [hops u8×n]
    | [tags, MessagePack] | [nodes, MessagePack]

Which of the bracketed parts are present is in the frame's flags.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from topics.storage import rows as row_text
from topics.values import (
    MAX_BATCH_RECORDS,
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

# What a key that was not sent leaves behind; `Raw` that was sent is never empty.
_NOTHING = Raw(b"")


if TYPE_CHECKING:
    Stamp = Any
else:
    # Under names that are the server's: no JSON is decoded to this, so that a record with one does not fit.
    Stamp = UnsetType


class Line(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One record, first as it arrives, then, stamped, as every reader will receive it.

    Key order is the order of the wire, and what is unset is not rendered; `tag` and `node` are taken out
    before rendering.
    """

    seq: Stamp = msgspec.field(default=UNSET, name=row_text.SEQ)
    ts: Stamp = msgspec.field(default=UNSET, name=row_text.TS)
    origin: Stamp = msgspec.field(default=UNSET, name=row_text.NODE)
    data: Raw = msgspec.field(default=_NOTHING)
    meta: Raw | UnsetType = UNSET
    tag: str | UnsetType | None = UNSET
    node: str | UnsetType | None = UNSET


class PlainLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record of nothing but data, as most are; whatever else a client may send is not a plain record."""

    seq: Stamp = msgspec.field(default=UNSET, name=row_text.SEQ)
    ts: Stamp = msgspec.field(default=UNSET, name=row_text.TS)
    data: Raw = msgspec.field(default=_NOTHING)


if TYPE_CHECKING:
    Decoded: TypeAlias = list[Line] | list[PlainLine] | Records
else:
    Decoded = list[Line]  # others are put in their place


class AppendBody(msgspec.Struct, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A write. Where all records are plain, they are decoded as such."""

    records: Decoded | UnsetType = UNSET
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False
    return_seqs: bool = True


class KeyedLines(msgspec.Struct, gc=False):
    """A write of plain records with an idempotency key, and of nothing else."""

    records: list[PlainLine]
    key: str


class _Records(msgspec.Struct, gc=False):
    records: list[Raw] = []


Write = TypeVar("Write", bound=AppendBody)
# Records without anything around them: decoded, or cut out by the accelerator.
OnlyRecords: TypeAlias = list[PlainLine] | Records
# A plain record by itself; with an accelerator, just its data.
Lone: TypeAlias = PlainLine | bytes

_decode_plain = msgspec.json.Decoder(list[PlainLine]).decode
_decode_lines = msgspec.json.Decoder(list[Line]).decode
_decode_key = msgspec.json.Decoder(str).decode
_decode_records = msgspec.json.Decoder(_Records).decode
_encode_lines = msgspec.json.Encoder().encode_lines
# How a write of nothing but records begins and ends, and how its records begin in any other.
_ONLY_BEGINS, _ONLY_ENDS = b'{"records":[', b"}]}"
_RECORDS = b'"records":'
# Up to here, a piece of a body is copied sooner than it is viewed.
_SHORT_BYTES = 4096
# A write of records and a key, behind them or before them.
_KEY_FOLLOWS, _BRACE = b'],"idempotency_key":', ord("}")
_KEY_BEGINS, _RECORDS_FOLLOW = b'{"idempotency_key":"', b'","records":['

HAS_META, HAS_TAGS, HAS_NODES, HAS_HOPS = 1, 2, 4, 8
_LENGTHS = Struct("<II")
PAYLOAD_HEAD_BYTES = _LENGTHS.size
_pack = msgspec.msgpack.Encoder().encode
_unpack_names = msgspec.msgpack.Decoder(list[str | None])


class AppendForm(Generic[Write]):
    """The form of a write, which may say more than an `AppendBody`.

    Its records are cut out and decoded by themselves. What is left is short, so that it costs little to make
    sure that no name comes twice.
    """

    def __init__(self, kind: type[Write]) -> None:
        self._kind = kind
        self._form = Form(kind)

    def decode(self, body: bytes, note: Note = Misnamed.refuse) -> Write | OnlyRecords | KeyedLines:
        """Just the records, if they are plain and there is nothing else but, perhaps, a key.

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
            if body[:12] == _ONLY_BEGINS:
                if body[-3:] == _ONLY_ENDS:
                    if was_spaced and (found := _cut(body, 11, len(body) - 1)) is not None:
                        return found
                    # If anything else stood between the brackets, it would not be one array.
                    records = body[11:-1] if len(body) <= _SHORT_BYTES else memoryview(body)[11:-1]
                    try:
                        return _decode_plain(records)
                    except msgspec.ValidationError:
                        # Not all of them plain, or something is wrong: the other decoder can tell.
                        return self._kind(records=_decode_lines(records))
                keyed = _key_behind(body)
            else:
                keyed = _key_before(body)
            if keyed is not None:
                return keyed
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


def _cut(body: bytes, start: int, stop: int) -> Records | None:
    """The records of an array in a body, if nothing is unusual about them, and there is an accelerator."""
    native = accelerator.native
    return None if native is None else native.cut(body, start, stop)


def _key_behind(body: bytes) -> KeyedLines | None:
    """Nothing but plain records and a key, in this order: if both pieces are whole, nothing else is there."""
    key_at = body.rfind(b'"', 0, -2)
    if body[key_at - 20 : key_at] == _KEY_FOLLOWS and body[-1] == _BRACE and len(body) <= _SHORT_BYTES:
        try:
            return KeyedLines(_decode_plain(body[11 : key_at - 19]), _decode_key(body[key_at:-1]))
        except msgspec.DecodeError:
            pass
    return None


def _key_before(body: bytes) -> KeyedLines | None:
    """The same with the key first."""
    if body[:20] == _KEY_BEGINS and body[-3:] == _ONLY_ENDS and len(body) <= _SHORT_BYTES:
        at = body.find(_RECORDS_FOLLOW)
        try:
            return KeyedLines(_decode_plain(body[at + 12 : -1]), _decode_key(body[19 : at + 1]))
        except msgspec.DecodeError:
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


def lone_record(request: AppendBody | OnlyRecords | KeyedLines) -> Lone | None:
    """The record of a write that consists of one plain record and asks for nothing else but, perhaps, a key.

    Its size is the caller's business.
    """
    if isinstance(request, Records):
        return request.lone()
    if type(request) is KeyedLines:
        request = request.records
    if type(request) is list and len(request) == 1 and request[0].data is not _NOTHING:
        return request[0] if accelerator.native is None else bytes(request[0].data)
    return None


def lone_data(body: bytes) -> bytes | None:
    """The same straight from a body, as most writes of one record are: None where it has to be decoded."""
    native = accelerator.native
    return None if native is None or not body.isascii() else native.lone(body)


def compact_json(body: bytes) -> bytes:
    """The same JSON without insignificant white space; payload text is not otherwise touched."""
    # Asked by byte value: four times faster than by one-byte string.
    if 32 in body or 10 in body or 9 in body or 13 in body:
        try:
            return msgspec.json.format(body, indent=-1)
        except UNDECODABLE as error:
            raise invalid(f"body is not valid JSON: {error}") from None
    return body


class Batch:
    """Records ready to be given seqs: everything about them is checked, nothing is assigned."""

    __slots__ = ("_lines", "count", "data_lens", "ends", "meta_lens", "nodes", "size", "tags")

    # The payload of a frame and its flags, where rendering has made them.
    prepared: tuple[bytes, int] | None = None
    # Of batches so large that they are rendered beside the loop: the time in the rows.
    rendered_ms: int | None = None

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
        # Where each row ends, once it was asked for: the same rows may be stored in many places.
        self.ends: np.ndarray | None = None

    def render(self, first_seq: int, ts: int) -> bytes | memoryview:
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

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        """Where each row ends."""
        assert isinstance(rows, bytes)
        if self.count > 1 and self.meta_lens is None and self.nodes is None:
            # Around its data every row has the same text, but for the digits of its seq, and those only grow:
            # as many in the last row as in the first means as many in all. Adding beats looking for newlines.
            data_lens = np.frombuffer(self.data_lens, np.uint32)
            around = rows.index(b"\n") + 1 - self.data_lens[0]
            last = len(rows) - 1 - rows.rindex(b"\n", 0, -1) - self.data_lens[-1]
            if around == last:
                return np.cumsum(data_lens + np.uint32(around), dtype=np.uint32)
        return row_ends(rows, self.count)

    def prepare(self, first_seq: int, ts: int, now: int | None = None) -> None:
        """Render ahead of time, on any thread: of use if seq and time are as expected. Small ones do not.

        `now`: the time at which the write is to have been asked for, if it is written for itself.
        """

    def forget_prepared(self) -> None:
        """What rendering has made beside the rows is not needed."""


def row_ends(rows: bytes | memoryview, count: int) -> np.ndarray:
    """Where each row ends. Newlines separate rows and never occur inside one."""
    if count == 1:
        return np.array([len(rows)], np.uint32)
    return (np.flatnonzero(np.frombuffer(rows, np.uint8) == 10) + 1).astype(np.uint32)


class CutBatch(Batch):
    """Records of which the accelerator knows where they lie: it renders what their frame holds at once."""

    __slots__ = ("_records", "prepared")

    def __init__(self, records: Records) -> None:
        self._records = records
        self.count = records.count
        self.size = records.size
        self.data_lens = array("I", records.data_lens())
        self.meta_lens = array("I", records.meta_lens()) if records.has_metas else None
        self.nodes = records.nodes() if records.has_nodes else None
        self.tags = records.tags() if records.has_tags else None
        self.ends = None

    def render(self, first_seq: int, ts: int) -> memoryview:
        payload, length, ends, flags = self._records.payload(first_seq, ts)
        self.prepared = (payload, flags)
        self.ends = np.frombuffer(ends, np.uint32)
        return memoryview(payload)[PAYLOAD_HEAD_BYTES : PAYLOAD_HEAD_BYTES + length]

    def forget_prepared(self) -> None:
        self.prepared = None

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        assert self.ends is not None
        return self.ends


def plain_batch(records: list[Lone]) -> Batch:
    """Records that `lone_record` has judged."""
    if type(records[0]) is bytes:
        return CutBatch(accelerator.native.gathered(records))
    lines: list[PlainLine] = records  # type: ignore[assignment]
    return Batch(lines, [len(line.data) for line in lines])


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


# --- in the journal ---------------------------------------------------------------------------------------


def encode_payload(
    batch: Batch, rows: bytes | memoryview, hops: bytes | None = None, keys: bytes = b""
) -> tuple[bytes, int]:
    """Payload and flags. Keys stand before everything else."""
    if batch.prepared is not None and hops is None:
        payload, flags = batch.prepared
        return keys + payload if keys else payload, flags
    data_lens = batch.data_lens.tobytes()
    if batch.meta_lens is None and batch.tags is None and batch.nodes is None and hops is None:
        return b"".join((keys, _LENGTHS.pack(len(rows), 0), rows, data_lens)), 0
    flags = 0
    parts = [keys, b"", rows, data_lens]
    tags = b""
    if batch.meta_lens is not None:
        flags |= HAS_META
        parts.append(array("I", batch.meta_lens).tobytes())
    if hops is not None:
        flags |= HAS_HOPS
        parts.append(hops)
    if batch.tags is not None:
        flags |= HAS_TAGS
        tags = _pack(batch.tags)
        parts.append(tags)
    if batch.nodes is not None:
        flags |= HAS_NODES
        parts.append(_pack(batch.nodes))
    parts[1] = _LENGTHS.pack(len(rows), len(tags))
    return b"".join(parts), flags


class StoredBatch(Batch):
    """A batch read back from the journal: already rendered, so it only carries the side values."""

    __slots__ = ()

    def __init__(
        self,
        count: int,
        data_lens: Sequence[int],
        meta_lens: list[int] | None,
        nodes: list[str | None] | None,
        tags: list[str | None] | None,
    ) -> None:
        super().__init__([], data_lens, meta_lens, nodes, tags)
        self.count = count


def decode_payload(payload: memoryview, count: int, flags: int) -> tuple[StoredBatch, bytes, bytes | None]:
    """The batch, its rows and its hops."""
    rows_length, tags_length = _LENGTHS.unpack_from(payload, 0)
    at = _LENGTHS.size
    rows = bytes(payload[at : at + rows_length])
    at += rows_length
    data_lens, at = _u32s(payload, at, count)
    meta_lens: list[int] | None = None
    hops: bytes | None = None
    tags: list[str | None] | None = None
    nodes: list[str | None] | None = None
    if flags & HAS_META:
        meta_lens, at = _u32s(payload, at, count)
    if flags & HAS_HOPS:
        hops = bytes(payload[at : at + count])
        at += count
    if flags & HAS_TAGS:
        tags = _unpack_names.decode(payload[at : at + tags_length])
        at += tags_length
    if flags & HAS_NODES:
        nodes = _unpack_names.decode(payload[at:])
    return StoredBatch(count, data_lens, meta_lens, nodes, tags), rows, hops


def plain_parts(payload: memoryview, count: int) -> tuple[memoryview, memoryview]:
    """Rows and data lengths of a frame without flags, where they lie."""
    at = len(payload) - 4 * count
    return payload[_LENGTHS.size : at], payload[at:]


def _u32s(payload: memoryview, at: int, count: int) -> tuple[list[int], int]:
    end = at + 4 * count
    return list(payload[at:end].cast("I")), end

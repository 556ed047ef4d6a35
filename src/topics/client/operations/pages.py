"""Decodes pages of a topic: records of its type, and at most one loss."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from topics.client.encoding import RAW, Codec, decode_json
from topics.client.errors import InvalidData
from topics.client.records import AnyLoss, Lost, Record, Restarted

T = TypeVar("T")


class _PageRow(msgspec.Struct, gc=False):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Any
    tag: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    meta: dict[str, Any] | None = None


class _RawRow(_PageRow, gc=False):
    data: msgspec.Raw


class _BareRow(_RawRow, gc=False):
    meta: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]

    def decoded_meta(self) -> dict[str, Any] | None:
        return decode_json(self.meta) if len(self.meta) else None


class TombstoneReply(msgspec.Struct, gc=False):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    previous_epoch: int | None = None

    def loss(self, topic: str, epoch: int, known_epoch: int | None) -> AnyLoss:
        if self.reason == "recreated":
            former = self.previous_epoch if self.previous_epoch is not None else known_epoch
            return Restarted(topic, epoch, former, self.gap_from)
        return Lost(topic, epoch, self.gap_from, self.gap_to, self.reason, self.missed_estimate)


class PageReply(msgspec.Struct, gc=False):
    records: list[_PageRow]
    next_from_seq: int
    head_seq: int
    caught_up: bool
    epoch: int
    tombstone: TombstoneReply | None = None


class _RawPage(PageReply, gc=False):
    records: list[_RawRow]  # type: ignore[assignment]


class _BarePage(PageReply, gc=False):
    records: list[_BareRow]  # type: ignore[assignment]


_decode_bare_page = msgspec.json.Decoder(_BarePage).decode


def _forgiving(decode: Callable[[bytes], PageReply]) -> Callable[[bytes], PageReply]:
    """Decode a page leniently if one of its records has numbers that the fast decoder refuses."""

    def forgiving(body: bytes) -> PageReply:
        try:
            return decode(body)
        except msgspec.DecodeError:
            return _decode_bare_page(body)

    return forgiving


_decode_plain = _forgiving(msgspec.json.Decoder(PageReply).decode)
_decode_typed = _forgiving(msgspec.json.Decoder(_RawPage).decode)


class Batch(Generic[T]):
    """The next items of a reader: a loss, then records, then an error if the next record does not fit."""

    __slots__ = ("invalid", "loss", "records")

    def __init__(
        self, records: list[Record[T]], loss: AnyLoss | None = None, invalid: InvalidData | None = None
    ) -> None:
        self.records = records
        self.loss = loss
        self.invalid = invalid


def page_decoder(codec: Codec[Any]) -> Callable[[bytes], PageReply]:
    if codec is RAW:
        return _decode_bare_page
    return _decode_plain if codec.is_plain else _decode_typed


def records_of(codec: Codec[T], topic: str, page: PageReply) -> Batch[T]:
    epoch = page.epoch
    if codec.is_plain and not isinstance(page, _BarePage):
        return Batch(
            [
                Record(topic, epoch, row.seq, row.ts, row.data, row.tag, row.node, row.meta)
                for row in page.records
            ]
        )
    if codec is RAW:
        return Batch(
            [
                Record(topic, epoch, row.seq, row.ts, row.data, row.tag, row.node, row.meta or None)
                for row in page.records
            ]
        )
    decode = codec.decode
    records: list[Record[T]] = []
    for row in page.records:
        try:
            data = decode(row.data)
            meta = row.decoded_meta() if isinstance(row, _BareRow) else row.meta
        except ValueError as error:
            # The records before it are handed out first, and the cursor stays before it.
            return Batch(records, None, InvalidData(topic, row.seq, str(error)))
        records.append(Record(topic, epoch, row.seq, row.ts, data, row.tag, row.node, meta))
    return Batch(records)


class _SingleRecord(msgspec.Struct, gc=False):
    topic: str
    epoch: int
    record: _BareRow


_decode_single = msgspec.json.Decoder(_SingleRecord).decode


def single_record(codec: Codec[T], body: bytes) -> Record[T]:
    """Decode one record that was requested by its seq."""
    found = _decode_single(body)
    row = found.record
    try:
        data, meta = codec.decode(row.data), row.decoded_meta()
    except ValueError as error:
        raise InvalidData(found.topic, row.seq, str(error)) from error
    return Record(found.topic, found.epoch, row.seq, row.ts, data, row.tag, row.node, meta)

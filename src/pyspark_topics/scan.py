"""One seq range over HTTP: Arrow in, Arrow out, every gap announced where it lies."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyspark_topics.loss import RECREATED, TOPIC_DELETED, LossPolicy
from pyspark_topics.offsets import ORIGIN, Position
from pyspark_topics.partitions import SeqRange
from pyspark_topics.schema import ReadSchema
from topics.client import Client, Refused, Unreachable

# A scan that breaks off is taken up again behind the last record that arrived; one that breaks off this
# often without delivering anything will not get better.
MAX_BREAKS = 5
METADATA = b"topics"
_GAP = ("gap_from", "gap_to", "reason")


@dataclass(frozen=True)
class ScanFilter:
    """What is left out in silence: the reader's own choice, never loss."""

    nodes: tuple[str, ...] = ()
    tag: Any = None
    since_ts: int | None = None
    until_ts: int | None = None

    def request(self) -> dict[str, Any]:
        asked = {
            "node": list(self.nodes) or None,
            "tag": self.tag,
            "since_ts": self.since_ts,
            "until_ts": self.until_ts,
        }
        return {key: value for key, value in asked.items() if value is not None}


class ScanBroken(Exception):
    """The connection ended in the middle of a scan."""


class _Cursor:
    """How far a range has been delivered. It starts in the life of the topic that the reader last saw."""

    def __init__(self, wanted: SeqRange) -> None:
        self.at = wanted.start
        self._end = Position(wanted.to_seq, wanted.epoch)

    @property
    def done(self) -> bool:
        return self.at == self._end

    def move(self, seq: int) -> None:
        current = self.at.seq if self.at.leads_to(self._end) else ORIGIN
        self.at = Position(min(max(seq, current), self._end.seq), self._end.epoch)


class _Stream:
    """The batches of a scan, each with what the server noted on it."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        try:
            self._reader = pa.ipc.open_stream(pa.PythonFile(response, mode="r"))
            self.head: dict[str, Any] = json.loads(self._reader.schema.metadata[METADATA])
        except (OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
            raise ScanBroken(str(error)) from error

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        while True:
            try:
                batch, metadata = self._reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            except (OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
                raise ScanBroken(str(error)) from error
            yield batch, json.loads(metadata[METADATA]) if metadata and METADATA in metadata else {}


@dataclass
class ScanReader:
    client: Client
    schema: ReadSchema
    loss: LossPolicy
    filter: ScanFilter

    def read(self, wanted: SeqRange) -> Iterator[pa.RecordBatch]:
        cursor = _Cursor(wanted)
        breaks = 0
        while not cursor.done:
            before, why = cursor.at, "it does not move on"
            try:
                yield from self._scan(wanted, cursor)
            except ScanBroken as broken:
                why = str(broken)
            breaks = breaks + 1 if cursor.at == before else 0
            if breaks > MAX_BREAKS:
                raise Unreachable(f'reading topic "{wanted.topic}" broke off: {why}')

    def _scan(self, wanted: SeqRange, cursor: _Cursor) -> Iterator[pa.RecordBatch]:
        request = {
            "from_seq": cursor.at.seq,
            "to_seq": wanted.to_seq,
            "epoch": cursor.at.epoch,
            "columns": self.schema.scanned,
            **self.filter.request(),
        }
        try:
            response = self.client.scan(wanted.topic, request)
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
            yield from self._lost_to_the_end(wanted, cursor, TOPIC_DELETED)
            return
        try:
            yield from self._batches(response, wanted, cursor)
        finally:
            if not response.isclosed():
                self.client.close()

    def _batches(
        self, response: http.client.HTTPResponse, wanted: SeqRange, cursor: _Cursor
    ) -> Iterator[pa.RecordBatch]:
        stream = _Stream(response)
        if stream.head["epoch"] != wanted.epoch:
            yield from self._lost_to_the_end(wanted, cursor, RECREATED)
            return
        for batch, notes in stream:
            gap = notes.get("tombstone")
            if gap is not None:
                yield from self._announced(wanted, cursor, **{key: gap[key] for key in _GAP})
            if batch.num_rows:
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield self.schema.records(wanted.topic, batch.num_rows, columns)
                cursor.move(columns["seq"][-1].as_py())
            if notes.get("complete"):
                cursor.move(notes["next_from_seq"])
                if not cursor.done and stream.head["head_seq"] < wanted.to_seq:
                    # The head fell back below what was planned with: the end of the log is gone.
                    yield from self._lost_to_the_end(wanted, cursor, RECREATED)
                return
        raise ScanBroken("the stream ended early")

    def _announced(
        self, wanted: SeqRange, cursor: _Cursor, gap_from: int, gap_to: int, reason: str
    ) -> Iterator[pa.RecordBatch]:
        """Of an earlier life the server says that it is over, and the reader may know how far it went."""
        if reason == RECREATED and wanted.unread is not None:
            row = self.loss.announce(wanted.topic, *wanted.unread, reason)
            if row is not None:
                yield row
            if gap_from > gap_to:  # nothing of the new life is lost, and all is said
                cursor.move(gap_to)
                return
        yield from self._lost(wanted, cursor, gap_from, gap_to, reason)

    def _lost_to_the_end(self, wanted: SeqRange, cursor: _Cursor, reason: str) -> Iterator[pa.RecordBatch]:
        return self._lost(wanted, cursor, cursor.at.seq + 1, wanted.to_seq, reason)

    def _lost(
        self, wanted: SeqRange, cursor: _Cursor, gap_from: int, gap_to: int, reason: str
    ) -> Iterator[pa.RecordBatch]:
        gap_to = min(gap_to, wanted.to_seq)
        row = self.loss.announce(wanted.topic, gap_from, gap_to, reason)
        cursor.move(gap_to)
        if row is not None:
            yield row


def scan_head(client: Client, topic: str) -> dict[str, Any]:
    """What a scan says of the topic before its first record: epoch, head, lines, where seqs begin."""
    response = client.scan(topic, {"columns": ["seq"], "max_records": 1})
    schema = pa.ipc.open_stream(response.read()).schema
    head: dict[str, Any] = json.loads(schema.metadata[METADATA])
    return head

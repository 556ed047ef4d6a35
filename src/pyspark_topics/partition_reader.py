"""What a task does: read each seq range from its sealed file if it can, otherwise from the server.

    task → range by range → Arrow in the schema of the read, with every gap where it occurred

A sealed file that is gone is not a loss: the server is asked for the range and tells what became of it.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pyspark_topics.client import ScanFile
from pyspark_topics.loss import RECREATED, TOPIC_DELETED, LossPolicy
from pyspark_topics.offsets import ORIGIN, StreamOffset
from pyspark_topics.options import SourceOptions
from pyspark_topics.partitions import Pin, ScanFilter, SeqRange, TaskPartition
from pyspark_topics.rows import ReadSchema
from pyspark_topics.servers import TopicsClient
from topics.client import Refused, TopicsError, Unreachable

RENEWAL_PATIENCE_S = 1.0


def read_task(
    options: SourceOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Read one task of Spark's source, on an executor."""
    return (batch for _, batch in read_ranges(options, schema, chosen, partition))


def read_ranges(
    options: SourceOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[tuple[SeqRange, pa.RecordBatch]]:
    """Each range from its file where that is possible, else from the server."""
    from pyspark_topics.sealed import SegmentReader

    if options.archive is not None:
        yield from _from_both(options, schema, chosen, partition)
        return
    with (
        options.server.client() as client,
        # Of its own, because a scan may be under way; and not patient, because files are read without it.
        replace(options.server, patience_s=RENEWAL_PATIENCE_S).client() as keeper,
        closing(SegmentReader(schema, chosen)) as files,
    ):
        client.expect(partition.homes)
        keeper.expect(partition.homes)
        server = ScanReader(client, schema, LossPolicy(options.loss, schema), chosen)
        leases = Renewal(keeper, partition.pins)
        for one in partition.ranges:
            leases.keep()
            for batch in (files if files.can_read(one) else server).read(one):
                yield one, batch
                leases.keep()


def _from_both(
    options: SourceOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[tuple[SeqRange, pa.RecordBatch]]:
    """Read ranges from the log, and what has left the log from the table of an archive."""
    # Loaded where it is needed: tables are read by pipelines, and these read topics.
    from pyspark_topics.archived import ArchiveReader, UnionReader

    loss = LossPolicy(options.loss, schema)
    table = ArchiveReader(options, schema, loss, chosen)
    # Whatever the reader does with loss, it may not be one.
    log_alone = replace(options, archive=None, loss="rows")
    with options.server.client() as client:
        client.expect(partition.homes)
        union = UnionReader(client, options, schema, loss, chosen)
        for one in partition.ranges:
            if one.archived_range is not None:
                batches = table.read(one)
            else:
                part = TaskPartition([one])
                found = read_task(log_alone, UnionReader.inner(schema), chosen, part)
                batches = union.read(one, found)
            for batch in batches:
                yield one, batch


# Of the lease: early enough for a second attempt, should the server be busy or restarting.
RENEW_AFTER = 0.3


@dataclass
class Renewal:
    """A task's side of the leases: while it reads, the files it still has to open stay where they are.

    The driver cannot do this, because its part in a batch read ends with the plan. Asked first of all: the
    task does not know how long it had to wait for its turn.
    """

    client: TopicsClient
    pins: set[Pin]

    def __post_init__(self) -> None:
        self._due = time.monotonic()

    def keep(self) -> None:
        """Call this often; it asks the server when a good part of the lease is over."""
        if not self.pins or time.monotonic() < self._due:
            return
        for pin in tuple(self.pins):
            try:
                self.client.renew_segments(pin.topic, pin.snapshot)
            except Refused:
                self.pins.discard(pin)  # it has run out: whatever file is gone will be read over HTTP
            except TopicsError:
                pass
        self._due = time.monotonic() + min((pin.lease_s for pin in self.pins), default=0.0) * RENEW_AFTER


# A scan that breaks off is taken up again behind the last record that arrived; one that breaks off this
# often without delivering anything will not get better.
MAX_BREAKS = 5
METADATA = b"topics"
_GAP = ("gap_from", "gap_to", "reason")


class ScanBroken(Exception):
    """The connection ended in the middle of a scan."""


class _Cursor:
    """The position up to which a range was delivered. It starts in the epoch that the reader last saw."""

    def __init__(self, wanted: SeqRange) -> None:
        self.at = wanted.start
        self._end = StreamOffset(wanted.to_seq, wanted.epoch)

    @property
    def done(self) -> bool:
        return self.at == self._end

    def move(self, seq: int) -> None:
        current = self.at.seq if self.at.leads_to(self._end) else ORIGIN
        self.at = StreamOffset(min(max(seq, current), self._end.seq), self._end.epoch)


def _messages(body: ScanFile) -> Iterator[tuple[pa.RecordBatch | None, dict[str, Any]]]:
    """Yield the server's notes on a scan, and then its batches with the notes on each."""
    try:
        reader = pa.ipc.open_stream(pa.PythonFile(body, mode="r"))
        yield None, json.loads(reader.schema.metadata[METADATA])
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            yield batch, json.loads(metadata[METADATA]) if metadata and METADATA in metadata else {}
    except StopIteration:
        return
    except (OSError, pa.ArrowInvalid) as error:
        raise ScanBroken(str(error)) from error


@dataclass
class ScanReader:
    client: TopicsClient
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
            body = self.client.scan(wanted.topic, request)
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
            yield from self._lost_to_the_end(wanted, cursor, TOPIC_DELETED)
            return
        try:
            yield from self._batches(body, wanted, cursor)
        finally:
            body.close()

    def _batches(self, body: ScanFile, wanted: SeqRange, cursor: _Cursor) -> Iterator[pa.RecordBatch]:
        messages = _messages(body)
        _, head = next(messages)
        if head["epoch"] != wanted.epoch:
            yield from self._lost_to_the_end(wanted, cursor, RECREATED)
            return
        for batch, notes in messages:
            gap = notes.get("tombstone")
            if gap is not None:
                yield from self._announced(wanted, cursor, **{key: gap[key] for key in _GAP})
            if batch is not None and batch.num_rows:
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield self.schema.records(wanted.topic, batch.num_rows, columns)
                cursor.move(columns["seq"][-1].as_py())
            if notes.get("complete"):
                cursor.move(notes["next_from_seq"])
                if not cursor.done and head["head_seq"] < wanted.to_seq:
                    # The head fell back below what was planned with: the end of the log is gone.
                    yield from self._lost_to_the_end(wanted, cursor, RECREATED)
                return
        raise ScanBroken("the stream ended early")

    def _announced(
        self, wanted: SeqRange, cursor: _Cursor, gap_from: int, gap_to: int, reason: str
    ) -> Iterator[pa.RecordBatch]:
        """Of an earlier life the server says that it is over, and the reader may know how far it went."""
        if reason == RECREATED and wanted.unread is not None:
            yield from self.loss.announce(wanted.topic, *wanted.unread, reason)
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
        cursor.move(gap_to)
        yield from self.loss.announce(wanted.topic, gap_from, gap_to, reason)


def scan_head(client: TopicsClient, topic: str) -> dict[str, Any]:
    """Return the notes of a scan before its first record: epoch, head, lines, the first seq."""
    with client.scan(topic, {"columns": ["seq"], "max_records": 1}) as body:
        schema = pa.ipc.open_stream(body.read()).schema
    head: dict[str, Any] = json.loads(schema.metadata[METADATA])
    return head

"""A route while it runs: each micro-batch of its query and what its sources lost, in one commit.

    offsets of the batch → what was lost there, asked before the query runs ┐
    the query's rows → stage ← what its tasks met besides ──────────────────┴→ commit → cursors

A tombstone cannot pass through a query, which could filter it out. The driver therefore asks what was lost in
the ranges of a batch before it runs, whatever the query reads of them, and sets aside tombstone rows of the
source, because more may be lost until it is read.
"""

import json
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import BooleanType

from pyspark_topics.bad_records import BadRecords, records_against_schema
from pyspark_topics.errors import PipelineFailed, TableChanged, written_for_users
from pyspark_topics.loss import TOMBSTONE_BEGINNING, TOMBSTONE_TAG, LossPolicy, as_rows, as_text, together
from pyspark_topics.micro_batch_stream import publish_cursors
from pyspark_topics.offsets import NO_EPOCH, ORIGIN, Offsets, Stored, StreamOffset, read_stored, seen_from
from pyspark_topics.options import WriteOptions
from pyspark_topics.partition_reader import ScanReader
from pyspark_topics.partitions import ScanFilter, SeqRange, ranges_between
from pyspark_topics.pipelines.context import Context
from pyspark_topics.pipelines.progress import Missing
from pyspark_topics.pipelines.state import Checkpoint
from pyspark_topics.rows import LOSS_COLUMNS, TOMBSTONE, ReadSchema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import beside
from pyspark_topics.writer import Staged, stage_frame
from topics.client import Refused

if TYPE_CHECKING:
    from pyspark_topics.pipelines.route import Route

log = logging.getLogger(__name__)
# How often a running query is asked whether it still runs.
LOOK_EVERY_S = 0.2
# What Spark says of a query whose sources it has yet to start.
_STARTING = ("Initializing StreamExecution", "Initializing sources")
STARTED_EVERY_S = 0.05
# What it says of a Python process that did not report in time; the next one is quicker, as a rule.
_LATE = "Python worker failed to connect back"
START_ATTEMPTS = 5
# A batch that is being committed is waited for when the pipeline is told to end.
FINISH_S = 20.0
# Topics that are not there are looked for once in so many looks.
ABSENT_EVERY = 10


@dataclass
class RunningRoute:
    """One start of a route, from its checkpoint on."""

    route: "Route"
    context: Context
    client: TopicsClient
    # What looks for topics while micro-batches, on a thread of Spark's, use the other one.
    looking: TopicsClient
    read: int = 0
    written: int = 0
    errors: int = 0

    def __post_init__(self) -> None:
        self._checkpoint = Checkpoint(self.context.state, self.context.spark)
        self._tombstone_filter = TombstoneFilter(self.context.spark.sparkContext)
        # Held while a micro-batch is written, and while the query is ended.
        self._writing = threading.Lock()
        self._session = self.context.spark
        self._first = True
        # Where a query without a checkpoint begins, in every topic that it does not read from its beginning.
        self._begin: Offsets = {}

    def follow(self) -> None:
        while True:
            try:
                return self._follow()
            except Exception as error:
                # The query is made anew, for the columns of now. If it needs one that is gone, Spark says so.
                if TableChanged.__name__ not in str(error) or self.context.stop.is_set():
                    raise
                log.info("%s begins anew: %s", self.context.name, written_for_users(error))
                self._tombstone_filter = TombstoneFilter(self.context.spark.sparkContext)

    def _follow(self) -> None:
        context = self.context
        # Routes must not see each other's views.
        self._session = beside(context.spark)
        result = self.route.result(self._session, self._tombstone_filter, context.server, context.storage)
        missing = Missing(self.looking, context.progress, context.once)
        missing.tell(self._absent())
        if self.route.start == "latest" and not self._sources(0):
            self._begin = self.route.heads(context, self.looking)
        writer = (
            result.writeStream.foreachBatch(self._write)
            .outputMode(self.route.mode)
            .queryName(context.name)
            .option("checkpointLocation", self._checkpoint.uri)
        )
        if context.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self.route.every_s * 1000)} milliseconds")
        query = self._started(writer)
        if not self._absent():
            context.progress.say("running")
        looks = 0
        while not context.stop.is_set():
            if query.awaitTermination(LOOK_EVERY_S):
                return
            looks += 1
            if looks % ABSENT_EVERY == 0:
                missing.tell(self._absent())
        self._end(query)

    def _started(self, writer: DataStreamWriter) -> StreamingQuery:
        """A query whose sources run; or have failed, for another reason than that the machine was busy."""
        for attempt in range(START_ATTEMPTS):
            with self.context.starting:
                query = writer.start()
                while query.isActive and query.status["message"] in _STARTING:
                    time.sleep(STARTED_EVERY_S)
            if _LATE not in str(query.exception()):
                break
            log.info("%s starts again: Python was too slow to start, %d", self.context.name, attempt + 1)
        return query

    def _absent(self) -> list[str]:
        """Topics that are not there and never were, as far as the checkpoint knows."""
        passed = {
            topic for topic, at in self._offsets(self._checkpoint.last()).items() if at.epoch != NO_EPOCH
        }
        unread = [name for name in self.route.topics if name not in passed]
        return self.route.missing(unread, self.context, self.looking) if unread else []

    def _end(self, query: StreamingQuery) -> None:
        """Between two batches: one that is cut short would only be done again."""
        is_free = self._writing.acquire(timeout=FINISH_S)
        try:
            query.stop()
        finally:
            if is_free:
                self._writing.release()

    # --- a micro-batch ----------------------------------------------------------------------------------

    def _write(self, frame: DataFrame, batch: int) -> None:
        with self._writing:
            asked = lost_in(self.client, self._ranges(batch))
            target = self.route.into
            staged = stage_frame(frame, WriteOptions(self.context.server, target), self._bad_records)
            self._stage_bad_records(staged, batch)
            count, met = self._tombstone_filter.take()
            tombstones = together(met, asked)
            if tombstones:
                rows = as_rows(tombstones, self.route.losses_into)
                staged.put(self.client, "tombstones", [rows], target)
            self._commit(staged, batch)
            self.read += count
            self.written += staged.records
            self.errors += staged.errors
            lag = publish_cursors(self.client, self.context.name, self._moved(batch))
            self.context.progress.advance(count, lag=lag, lost=len(tombstones), errors=staged.errors)

    @property
    def _bad_records(self) -> BadRecords | None:
        into = self.route.errors_into
        return None if into is None else BadRecords(into, self.context.name)

    def _stage_bad_records(self, staged: Staged, batch: int) -> None:
        """Records of this batch that do not fit the schema, whatever the query reads of it."""
        if self._bad_records is None or self.route.schema is None:
            return
        server, ranges = self.context.server, self._ranges(batch)
        frame = records_against_schema(
            self._session, self.client, server, self.route.schema, ranges, self._bad_records
        )
        if frame is not None:
            found = stage_frame(frame, WriteOptions(server, self._bad_records.into), stage=staged.stage)
            staged.parts += found.parts
            staged.errors += found.records

    def _commit(self, staged: Staged, batch: int) -> None:
        try:
            staged.commit(self.client, self._checkpoint.query_id, batch)
            self.context.committed()
        except Refused as refusal:
            if refusal.code != "stage_conflict" or not self._first:
                raise
            self._pass_over(batch, refusal)
        self._first = False

    def _pass_over(self, batch: int, refusal: Refused) -> None:
        """The first batch of this run was committed before the last one ended, and with other rows."""
        if self._input_changed(batch):
            # What was removed since makes it impossible to compare, but not to know: the batch is in the
            # topic, once.
            why = "its input has changed since"
        elif self.context.accept:
            why = "it counts as it was written then"
        else:
            raise PipelineFailed(
                f"batch {batch} of {self.context.name} was committed before the last run ended, and now "
                "comes out with other rows: the route, one of its tables or what it calls was changed "
                "since, or it depends on chance. What was committed stays. To go on behind that "
                f"batch, run this once with --accept; to go on as before, undo the change "
                f"({refusal.code}: {refusal.message})"
            ) from None
        log.warning(
            "%s: batch %d was written before, and %s; going on behind it", self.context.name, batch, why
        )

    # --- what Spark planned -----------------------------------------------------------------------------

    def _sources(self, batch: int) -> list[Stored]:
        """From Spark's own plan of a batch."""
        lines = self._checkpoint.planned(batch)
        found = [read_stored(json.loads(line) if line.startswith("{") else {}) for line in lines]
        for one in found:
            self.client.expect(one.homes)
        return found

    def _ranges(self, batch: int) -> list[SeqRange]:
        """Return the ranges of a batch according to Spark's plan, whatever the query reads of them."""
        after = self._sources(batch)
        before = self._sources(batch - 1) or [Stored(self._begin)] * len(after)
        found = [
            one
            for start, end in zip(before, after, strict=False)
            for one in ranges_between(seen_from(start, end.homes), end.offsets, {}, start.heads)
        ]
        return list(dict.fromkeys(found))

    def _offsets(self, batch: int) -> Offsets:
        return {topic: at for source in self._sources(batch) for topic, at in source.offsets.items()}

    def _moved(self, batch: int) -> Offsets:
        before = self._offsets(batch - 1)
        return {topic: at for topic, at in self._offsets(batch).items() if before.get(topic) != at}

    def _input_changed(self, batch: int) -> bool:
        """Return whether a record of this batch has been deleted or lost."""
        before = self._offsets(batch - 1)
        for topic, end in self._moved(batch).items():
            start = before.get(topic, StreamOffset(ORIGIN, end.epoch))
            try:
                ledger = self.client.ledger(topic)
            except Refused:
                return True  # the topic is gone
            if not start.epoch == end.epoch == ledger["epoch"]:
                return True
            if any(gone["from"] <= end.seq and gone["to"] > start.seq for gone in ledger["ranges"]):
                return True
        return False


_ASKED = ReadSchema(("topic", "data", *LOSS_COLUMNS))


def lost_in(client: TopicsClient, ranges: Iterable[SeqRange]) -> list[str]:
    """Return the losses in these ranges: those the server reports, and those that other routes reported.

    Of the records, the server looks at the tags alone.
    """
    reader = ScanReader(
        client, _ASKED, LossPolicy("rows", _ASKED), ScanFilter(tag=["tag", "Eq", TOMBSTONE_TAG])
    )
    texts = []
    for wanted in ranges:
        for row in (row for batch in reader.read(wanted) for row in batch.to_pylist()):
            if row["kind"] == TOMBSTONE:
                texts.append(as_text(row["topic"], row["gap_from"], row["gap_to"], row["reason"]))
            elif row["data"].startswith(TOMBSTONE_BEGINNING):
                texts.append(row["data"])
    return texts


class _Gathered(AccumulatorParam[Any]):
    def zero(self, value: Any) -> Any:
        return [0, []]

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 - Spark's name
        return [value1[0] + value2[0], value1[1] + value2[1]]


@dataclass
class TombstoneFilter:
    """Lets records through, keeps tombstones for the driver. Only tasks that succeeded are counted."""

    context: SparkContext

    def __post_init__(self) -> None:
        self._found: Accumulator[Any] = self.context.accumulator([0, []], _Gathered())

    def through(self, frame: DataFrame) -> DataFrame:
        """Only records, without the columns that describe loss."""
        # Most texts stay where they are: Python gets only those that may be tombstones handed on.
        handed_on = f.when(f.col("tag") == TOMBSTONE_TAG, f.col("data"))
        return frame.where(_keeper(self._found)("topic", handed_on, *LOSS_COLUMNS)).drop(*LOSS_COLUMNS)

    def take(self) -> tuple[int, list[str]]:
        """Since the last call: how many records went through, and the tombstones as JSON text."""
        count, texts = self._found.value
        self._found.value = [0, []]
        return count, texts


def _keeper(found: Accumulator[Any]) -> Any:
    def keep(
        topic: pa.Array,
        handed_on: pa.Array,
        kind: pa.Array,
        gap_from: pa.Array,
        gap_to: pa.Array,
        reason: pa.Array,
    ) -> pa.Array:
        lost = pc.equal(kind, TOMBSTONE)
        known = pc.fill_null(pc.starts_with(handed_on, TOMBSTONE_BEGINNING), False)
        set_aside = pc.or_(lost, known)
        gap = (topic, gap_from, gap_to, reason)
        texts = [
            handed_on[at].as_py() if known[at].as_py() else as_text(*(c[at].as_py() for c in gap))
            for at in pc.indices_nonzero(set_aside).to_pylist()
        ]
        found.add([len(kind) - len(texts), texts])
        return pc.invert(set_aside)

    # "Not deterministic", or else Spark would move the query's filters below this one, and tombstones with
    # NULL in the columns they look at would be gone before they are seen.
    return f.arrow_udf(keep, BooleanType()).asNondeterministic()

"""The sink: tasks send rows to a stage, and the driver commits all of them at once.

    task:    rows → JSON text → parts of a stage → `Staged`, which is all that a commit needs
    driver:  the reports of its tasks, in order → one commit under an identity → appended once

The identity names the work and not the attempt: the id of a query or a job, and the number of its batch or
step. Work that is repeated after a crash has the same identity, so the server recognises it. For a streaming
query, both come from Spark's checkpoint.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from pyspark_topics.bad_records import IS_NULL, BadRecords, wrong
from pyspark_topics.client import arrow_stream
from pyspark_topics.errors import BadRow, BatchTooLarge, NotRepeatable, OptionError
from pyspark_topics.options import WriteOptions
from pyspark_topics.rows import SinkRows
from pyspark_topics.servers import TopicsClient
from topics.client import Refused, TopicsError

# Parts of about this size: far below the server's limit for a body, large enough not to count.
PART_BYTES = 8 * 1024 * 1024
# Under this name Spark tells its tasks the id of their query, which is the one in the checkpoint.
QUERY_ID = "sql.streaming.queryId"
# So much of a row is shown.
EXCERPT = 120
# What a task reports of a frame: one `Staged` as JSON text.
_REPORT = "staged"


@dataclass
class Staged(WriterCommitMessage):
    """Parts of a stage, in order, and the rows that were counted in them."""

    stage: str
    parts: list[str] = field(default_factory=list)
    records: int = 0
    # Rows that were no record, and went where such rows go.
    errors: int = 0
    # The task that sent them: its place among the others, and the streaming query it belongs to.
    partition: int = 0
    query_id: str | None = None

    def put(self, client: TopicsClient, name: str, rows: list[pa.RecordBatch], topic: str | None) -> None:
        """One more part; `topic` is for rows that name none."""
        self.parts += client.stage_part(self.stage, name, arrow_stream(pa.Table.from_batches(rows)), topic)

    def commit(self, client: TopicsClient, identity: str, batch: int) -> None:
        client.commit_stage(self.stage, identity, batch, self.parts)


def send(
    options: WriteOptions, staged: Staged, batches: Iterable[pa.RecordBatch], prefix: str = ""
) -> Staged:
    """Rows that are JSON text already, in parts whose names begin with `prefix`."""
    with options.server.client() as client:
        for number, rows in enumerate(gathered(_pieces(batches), PART_BYTES)):
            try:
                staged.put(client, f"{prefix}{number}", rows, options.topic)
            except Refused as refusal:
                raise _named(refusal, options, staged, rows) from None
            staged.records += sum(batch.num_rows for batch in rows)
    return staged


def _named(refusal: Refused, options: WriteOptions, staged: Staged, rows: list[pa.RecordBatch]) -> Exception:
    """Turn the server's refusal of a row of a part into an error about the user's row."""
    if refusal.status != 400:
        return refusal
    table = pa.Table.from_batches(rows).combine_chunks()
    found = wrong(table.to_batches()[0], options.topic is not None)
    if not found:
        return refusal
    row, what = next(iter(found.items()))
    excerpt = str(table["data"][row].as_py())[:EXCERPT]
    target = options.topic or table["topic"][row].as_py()
    return bad_row(target, staged.partition, staged.records + row, what, excerpt)


def bad_row(topic: str | None, partition: int, row: int, what: str, excerpt: str) -> BadRow:
    """`row` counts from 0; people do not."""
    return BadRow(
        f'for topic "{topic}", partition {partition}, row {row + 1}: {what}: {excerpt}; nothing was written: '
        "correct the row, or leave it out"
    )


def joined(stage: str, reports: Iterable[Staged]) -> Staged:
    """Join the reports of tasks that share a stage, in the order of their partitions."""
    ordered = sorted(reports, key=lambda one: one.partition)
    return Staged(
        stage,
        [part for one in ordered for part in one.parts],
        sum(one.records for one in ordered),
        sum(one.errors for one in ordered),
    )


@dataclass
class Stager:
    """The part of the sink that tasks run."""

    options: WriteOptions
    rows: SinkRows
    stage: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Where rows go that are no record; None: they are an error.
    bad_records: BadRecords | None = None

    def stage_rows(self, batches: Iterable[pa.RecordBatch], suffix: str = "") -> Staged:
        task = _task()
        staged = Staged(
            self.stage + suffix, partition=task.partitionId(), query_id=task.getLocalProperty(QUERY_ID)
        )
        # No other attempt has this id, so a straggler can never replace a part that counts.
        return send(self.options, staged, self._rendered(batches, staged), f"{task.taskAttemptId()}-")

    def _rendered(self, batches: Iterable[pa.RecordBatch], staged: Staged) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in batches:
            good, plain = batch, self.rows.plain(batch)
            if self.bad_records is not None:
                good, plain = self._sifted(self.bad_records, batch, plain, staged)
            try:
                yield self.rows.timed(plain, good)
            except BadRow as bad:
                at, why = next(iter(wrong(plain, self.rows.has_target).items()), (None, ""))
                if at is None:
                    raise
                # What is said has to be true of the row that is shown.
                said = str(bad) if why.endswith(IS_NULL) else why
                excerpt = str(good.slice(at, 1).to_pylist()[0])[:EXCERPT]
                raise bad_row(self.options.topic, staged.partition, row + at, said, excerpt) from None
            row += batch.num_rows

    def _sifted(
        self, bad_records: BadRecords, batch: pa.RecordBatch, plain: pa.RecordBatch, staged: Staged
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        found = wrong(plain, self.rows.has_target)
        if not found:
            return batch, plain
        rows = [(why, batch.slice(row, 1).to_pylist()[0]) for row, why in found.items()]
        with self.options.server.client() as client:
            name = f"{_task().taskAttemptId()}-errors-{staged.errors}"
            staged.put(client, name, [bad_records.records(rows)], bad_records.into)
        staged.errors += len(found)
        keep = pa.array([row not in found for row in range(batch.num_rows)])
        return batch.filter(keep), plain.filter(keep)


def stage_frame(
    frame: DataFrame, options: WriteOptions, bad_records: BadRecords | None = None, stage: str | None = None
) -> Staged:
    """All rows of a frame, for one commit; `stage` is one that has parts of this commit already."""
    stager = Stager(options, SinkRows.of(frame.schema, options), stage or uuid.uuid4().hex, bad_records)
    reports = _map_in_arrow(frame, partial(_stage_partition, stager)).collect()
    return joined(stager.stage, map(_staged, reports))


def stage_steps(frame: DataFrame, options: WriteOptions, commit_bytes: int) -> RDD[Staged]:
    """For each partition of a frame, when it is asked for: stages small enough for a commit, in order."""
    stager = Stager(options, SinkRows.of(frame.schema, options))
    return _map_in_arrow(frame, partial(_stage_in_steps, stager, commit_bytes)).rdd.map(_staged)


def _stage_partition(stager: Stager, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _report(stager.stage_rows(batches))


def _stage_in_steps(
    stager: Stager, commit_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    attempt = _task().taskAttemptId()
    for number, rows in enumerate(gathered(batches, commit_bytes)):
        yield _report(stager.stage_rows(rows, f"-{attempt}-{number}"))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


def _report(staged: Staged) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({_REPORT: [json.dumps(asdict(staged))]})


def _staged(report: Row) -> Staged:
    return Staged(**json.loads(report[_REPORT]))


def _map_in_arrow(frame: DataFrame, function: partial[Iterator[pa.RecordBatch]]) -> DataFrame:
    """`DataFrame.mapInArrow` also for machines without pandas, which it insists on and does not use."""
    schema = f"{_REPORT} STRING"
    try:
        return frame.mapInArrow(function, schema)
    except PySparkImportError:
        # Word for word what mapInArrow does, once it has made sure of pandas.
        make_udf = import_module("pyspark.sql.pandas.functions").vectorized_udf
        udf = make_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column = udf(*[frame[name] for name in frame.columns])
        return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches together until they have so many bytes. Empty ones are left out."""
    found: list[pa.RecordBatch] = []
    so_far = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        found.append(batch)
        so_far += batch.nbytes
        if so_far >= size:
            yield found
            found, so_far = [], 0
    if found:
        yield found


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that would be larger than a part, cut."""
    for batch in batches:
        rows = -(-batch.num_rows // max(batch.nbytes // PART_BYTES, 1))
        for start in range(0, batch.num_rows, max(rows, 1)):
            yield batch.slice(start, rows)


Messages = list[Staged | None]


class SinkWriter:
    """The common part of both writers."""

    # What to do about a batch that is too large.
    smaller: str
    # What its user says to append.
    appending: str

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(f"a topic cannot be overwritten, only appended to: use {self.appending}")
        self.options = options
        self.stager = Stager(options, SinkRows.of(schema, options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.stager.stage_rows(iterator)

    def commit_stage(self, stage: str, identity: str, batch: int, messages: list[Staged]) -> None:
        with self.options.server.client() as client:
            try:
                joined(stage, messages).commit(client, identity, batch)
            except Refused as refusal:
                if refusal.code != "payload_too_large":
                    raise
                raise BatchTooLarge(f"{refusal.message}, and this batch has more: {self.smaller}") from None

    def drop_stage(self, stage: str) -> None:
        """Drop a stage after a failure. An error here must not hide the first one; old stages expire."""
        with suppress(TopicsError), self.options.server.client() as client:
            client.drop_stage(stage)


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    smaller = "write it in several jobs, each of which is atomic by itself"
    appending = 'mode("append")'

    def commit(self, messages: Messages) -> None:
        present = [message for message in messages if message is not None]
        if self.options.txn is not None:
            self._commit_once(*self.options.txn, present)
        elif any(message.parts for message in present):
            self.commit_stage(self.stager.stage, self.stager.stage, 0, present)

    def _commit_once(self, name: str, version: int, present: list[Staged]) -> None:
        """Commit under the given version, also without rows, so that a repeat with other rows is refused."""
        try:
            self.commit_stage(self.stager.stage, name, version, present)
        except Refused as refusal:
            if refusal.code != "stage_conflict":
                raise
            raise NotRepeatable(
                f'txnVersion {version} of txnAppId "{name}" was written before with other rows, or is older '
                "than the last 100 versions; nothing was written. A new checkpoint counts from 0 again, and "
                f"needs a new txnAppId ({refusal.message})"
            ) from None

    def abort(self, messages: Messages) -> None:
        self.drop_stage(self.stager.stage)


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Spark makes one for a micro-batch's tasks and another for its commit: only messages connect them."""

    smaller = (
        "make micro-batches smaller with the source's maxOffsetsPerTrigger (a batch that is planned already "
        "keeps its size: start with a new checkpointLocation)"
    )
    appending = 'outputMode("append"), or foreachBatch with txnAppId and txnVersion'

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if options.txn is not None:
            raise OptionError('option "txnAppId" is for batch writes: a stream has an identity of its own')
        super().__init__(options, schema, overwrite)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        present = [message for message in messages if message is not None]
        if not present:
            return  # no task, no rows
        # A batch without rows is committed, too: if it had some when it ran before, that must come out.
        query_id = present[0].query_id
        if query_id is None:
            raise NotRepeatable(
                "Spark did not tell its tasks which query they belong to; nothing was written"
            )
        self.commit_stage(present[0].stage, query_id, batchId, present)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        for stage in {message.stage for message in messages if message is not None}:
            self.drop_stage(stage)

"""`archive`: topics → a table, exactly once by seq range.

    driver:     heads → seq ranges → tasks; then one commit of all files, then cursors, then trim
    executors:  a range of records → Parquet files, written and synced; the gaps in the range

Records go from the server or its files into Parquet files without passing through the JVM. The position of an
archive is in the table's own log, in the same commit as the files, so the two cannot disagree. Before the log
is trimmed, executors read the records back from the table and compare them with the log.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from deltalake import Schema

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.micro_batch_stream import publish_cursors
from pyspark_topics.offsets import Offsets, TopicView, advance
from pyspark_topics.options import SourceOptions, parse_read, source_options
from pyspark_topics.partition_reader import read_ranges
from pyspark_topics.partitions import (
    SMALLEST_TASK,
    ScanFilter,
    SeqRange,
    TaskPartition,
    planned,
    ranges_between,
)
from pyspark_topics.pipelines.compaction import Compaction
from pyspark_topics.pipelines.context import (
    Check,
    Context,
    Mistakes,
    Outcome,
    attempted,
    check_table,
    check_topics,
)
from pyspark_topics.pipelines.delta_table import Collision, Location, is_table, location, open_table
from pyspark_topics.pipelines.lake import Gap, Lake, is_archived
from pyspark_topics.pipelines.parquet import TARGET_BYTES, DataFile, write_files
from pyspark_topics.pipelines.progress import Missing
from pyspark_topics.pipelines.read_back import read_back
from pyspark_topics.pipelines.state import Homes
from pyspark_topics.pipelines.table_schema import (
    DAY,
    RECORDS,
    ArchiveColumns,
    Layout,
    refuse_other_table,
    refuse_unlike,
)
from pyspark_topics.pipelines.typed import Typing, check_columns, parse_schema, settled
from pyspark_topics.rows import LOSS_COLUMNS, ReadSchema, spark_schema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import on_executors
from pyspark_topics.subscription import subscribed

log = logging.getLogger(__name__)
# Heads are looked at this often; what is found waits for `every_s`, or until there is enough for full files.
LOOK_EVERY_S = 0.5
# What a record has; the epoch is known.
_ARCHIVED = ",".join(name for name in RECORDS.names if name != "epoch")
# Until the first files show how well the records compress.
FIRST_FILE_RECORDS = 1_000_000
# A task that fails repeats this much at most.
LARGEST_FILE_RECORDS = 8_000_000


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "archive"
    follows: ClassVar[bool] = True

    topics: list[str] = []
    # A regular expression for whole names, instead of `topics`.
    pattern: str | None = None
    # Folder or address of the table; the gap table is beside it, under the same name with `_gaps`.
    table: str
    # How long records may wait for a commit. Shorter means more and smaller files to merge later.
    every_s: float = 30.0
    target_file_bytes: int = TARGET_BYTES
    # Delete from the topics what is safely in the lake.
    trim: bool = False
    # Columns out of `data`, like "sku STRING, qty INT".
    schema: str | None = None
    # Fields that are no columns become some.
    evolve: bool = False
    # `topic`, `day` or fields of the schema: files have one value of these, and are sorted by those.
    partition_by: list[str] = []
    cluster_by: list[str] = []

    def __post_init__(self) -> None:
        check_topics(self.topics, self.pattern)
        check_table(self.table)
        if self.every_s < 0:
            raise ValueError("every_s has to be 0 or more")
        if self.target_file_bytes <= 0:
            raise ValueError("target_file_bytes has to be above 0")
        fields = parse_schema(self.schema) if self.schema is not None else {}
        check_columns("partition_by", self.partition_by, fields)
        check_columns("cluster_by", self.cluster_by, fields)

    @property
    def columns(self) -> ArchiveColumns:
        return ArchiveColumns(
            fields=parse_schema(self.schema) if self.schema is not None else {},
            typed=self.schema is not None or self.evolve,
            day=DAY in (*self.partition_by, *self.cluster_by),
            partition_by=tuple(self.partition_by),
            evolve=self.evolve,
        )

    def mistakes(self, check: Check) -> Mistakes:
        where = location(self.table, check.storage)

        def look() -> None:
            if is_table(where):
                refuse_other_table(open_table(where), Schema.from_arrow(RECORDS))
                refuse_unlike(open_table(where), self.columns, where.uri)
            elif not where.is_free():
                raise PipelineFailed(f"{where.uri} has files and is no Delta table")

        yield from attempted("table", look)

    def run(self, context: Context) -> Outcome:
        options = parse_read(
            source_options(context.server, self.topics, self.pattern, loss="rows", columns=_ARCHIVED),
            streaming=False,
        )
        with context.server.client() as client:
            if context.once:
                self._refuse_missing(client, options, context)
            lake = Lake.to_write(self.table, context.storage, self.columns)
            archiver = _Archiver(self, context, options, client, lake)
            archiver.run()
        return Outcome(facts={"table": archiver.lake.path, "records": archiver.records})

    def _refuse_missing(self, client: TopicsClient, options: SourceOptions, context: Context) -> None:
        """Before there is a table: what is refused leaves nothing behind."""
        _, missing = subscribed(client, options)
        where = location(self.table, context.storage)
        # One that is in the table was there once.
        if missing and is_table(where):
            missing = [name for name in missing if not is_archived(where, name)]
        Missing(client, context.progress, once=True).tell(missing)


def archives_into(table: str, check: Check) -> list[Archive]:
    """The archives among the checked pipelines that make this table."""
    uri = location(table).uri
    archives = [one for one in check.pipelines.values() if isinstance(one, Archive)]
    return [one for one in archives if location(one.table).uri == uri]


def table_mistakes(setting: str, table: str, check: Check) -> Mistakes:
    """Check a table that a pipeline reads; it need not exist if an archive creates it."""
    where = location(table, check.storage)

    def look() -> None:
        if is_table(where):
            refuse_other_table(open_table(where), Schema.from_arrow(RECORDS))
        elif not archives_into(table, check):
            raise PipelineFailed(f"there is no table at {where.uri}")

    yield from attempted(setting, look)


@dataclass(frozen=True)
class Written:
    """The report of a task."""

    files: list[DataFile]
    gaps: list[Gap]
    # Fields that are no columns, with what they held.
    found: dict[str, frozenset[str]]


@dataclass
class _Archiver:
    settings: Archive
    context: Context
    options: SourceOptions
    client: TopicsClient
    lake: Lake
    records: int = 0

    def __post_init__(self) -> None:
        self._per_file = FIRST_FILE_RECORDS
        self._compaction = Compaction(
            self.lake, self.settings.target_file_bytes, tuple(self.settings.cluster_by)
        )
        self._at: Offsets = {}
        self._missing = Missing(self.client, self.context.progress, self.context.once)
        self._absent: list[str] = []
        self._homes = Homes(self.context.state / "servers.json", self.client, self.options.server.urls[0])
        self._silent = ""

    def run(self) -> None:
        stop = self.context.stop
        self.lake.note_gaps()
        views = self._look()
        targets = views if self.context.once else None
        tasks_at_once = self.context.spark.sparkContext.defaultParallelism
        self.context.progress.say("running")
        self._missing.tell(self._absent)
        if self.settings.trim:
            self._trim(self._at)  # what a crash between commit and trim left behind
        last = time.monotonic() - self.settings.every_s
        while not stop.is_set():
            limit = self._per_file * tasks_at_once
            end = advance(self._at, views.values(), limit)
            waiting = sum(_waiting(view, self._at) for view in views.values())
            self.context.progress.expect(waiting)
            due = targets is not None or time.monotonic() - last >= self.settings.every_s
            if end != self._at and (due or waiting >= limit):
                self._step(end, views)
                last = time.monotonic()
            elif targets is not None:
                self._compaction.vacuum()  # also where there was nothing to do: others may have been killed
                return
            else:
                stop.wait(LOOK_EVERY_S)
                self._compaction.vacuum()
            views = self._look() if targets is None else targets
            self._missing.tell(self._absent)

    def _look(self) -> dict[str, TopicView]:
        # One that follows goes on with what the other servers have; an end of all is known to all of them.
        views, missing = subscribed(self.client, self.options, patient=self.context.once)
        for name in views.keys() - self._at.keys():
            found = self.lake.position(name)
            if found is not None:
                self._at[name] = found
        self._homes.check(views, self._at)
        self._tell_silence()
        # One that is in the table was there once.
        self._absent = [name for name in missing if self.lake.position(name) is None]
        return views

    def _tell_silence(self) -> None:
        silent = ", ".join(self.client.silent)
        if silent != self._silent:
            note = f"topics of {silent} wait: no answer; the others go on" if silent else ""
            self.context.progress.say("running", note)
        self._silent = silent

    def _step(self, end: Offsets, views: dict[str, TopicView]) -> None:
        """One commit: read, write, commit, and only then tell and trim."""
        ranges = ranges_between(self._at, end, views)
        options = replace(self.options, max_records_per_partition=self._per_file)
        with planned(self.client, ranges, options) as tasks:
            written = self._write(tasks, options)
            while self.settings.evolve and self._evolve(written):
                written = self._write(tasks, options)
        files = [one for part in written for one in part.files]
        gaps = [gap for part in written for gap in part.gaps]
        moved = {topic: at for topic, at in end.items() if self._at.get(topic) != at}
        self.context.step(self.context.name, "written")
        try:
            self.lake.commit(files, self._at, moved, gaps)
        except Collision as collision:
            self.lake.discard(files)
            self._look_again(collision)
            return
        self._at = end
        self._learn(files)
        self._tell(moved, views, sum(one.rows for one in files), len(gaps))
        self._compaction.run(self.context.spark)

    def _look_again(self, collision: Collision) -> None:
        """An erasure, or another archive of the same topics: go on from where the table stands now."""
        log.info("%s reads a batch again: %s", self.context.name, str(collision).splitlines()[0])
        self.lake.refresh()
        standing = {topic: self.lake.position(topic) for topic in self._at}
        self._at = {topic: at for topic, at in standing.items() if at is not None}

    def _write(self, tasks: list[TaskPartition], options: SourceOptions) -> list[Written]:
        """Nothing for a topic without records: its position is all there is to commit."""
        layout = Layout(self.lake.partition_by, tuple(self.settings.cluster_by))
        target = Target(self.lake.location, self.lake.columns, layout, self.settings.target_file_bytes)
        return on_executors(self.context.spark, partial(write_task, options, target), tasks)

    def _evolve(self, written: list[Written]) -> bool:
        """Add columns for new fields; return whether the batch has to be written again."""
        new = settled(part.found for part in written)
        if not new:
            return False
        self.lake.discard(one for part in written for one in part.files)
        self.lake.add_columns(pa.schema(list(new.items())))
        return True

    def _learn(self, files: list[DataFile]) -> None:
        """From the files just written: how many records make a file of the wanted size."""
        rows, size = sum(one.rows for one in files), sum(one.size for one in files)
        if rows >= SMALLEST_TASK:
            fitting = self.settings.target_file_bytes * rows // size
            self._per_file = max(SMALLEST_TASK, min(fitting, LARGEST_FILE_RECORDS))

    def _tell(self, moved: Offsets, views: dict[str, TopicView], records: int, gaps: int) -> None:
        self.records += records
        publish_cursors(self.client, self.context.name, moved)
        if self.settings.trim:
            self._trim(moved)
        lag = sum(_waiting(view, self._at) for view in views.values())
        self.context.progress.advance(records, lag=lag, lost=gaps)

    def _trim(self, moved: Offsets) -> None:
        """Delete from the log what the table has durably, after it was read back and found equal."""
        for topic, view in self._look().items():
            # Seqs of another life of the topic are not the ones that were archived.
            if topic in moved and moved[topic].epoch == view.epoch and view.floor <= moved[topic].seq:
                read_back(self.context.spark, self.options, self.lake, view, moved[topic])
                self.client.delete_before(topic, moved[topic].seq + 1)


def _waiting(view: TopicView, at: Offsets) -> int:
    return view.records_between(at[view.name], view.end) if view.name in at else view.head - view.floor + 1


@dataclass(frozen=True)
class Target:
    """The location, columns and layout of the files that tasks write."""

    where: Location
    columns: pa.Schema
    layout: Layout
    file_bytes: int


def write_task(options: SourceOptions, target: Target, partition: TaskPartition) -> Written:
    """Write the ranges of a task into files, on an executor."""
    gaps: list[Gap] = []
    typing = Typing(target.columns, target.layout.partition_by)
    rows = (typing.fill(batch) for batch in _records(options, partition, gaps))
    files = list(write_files(rows, target.where, target.file_bytes, target.layout))
    return Written(files, gaps, typing.found)


def _records(options: SourceOptions, partition: TaskPartition, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
    schema = ReadSchema.of(spark_schema(options), options)
    for wanted, batch in read_ranges(options, schema, ScanFilter(), partition):
        if batch.num_rows == 1 and batch.column("gap_from")[0].is_valid:
            gaps += _gaps(wanted, batch.select(LOSS_COLUMNS).to_pylist()[0])
        else:
            epochs = pa.repeat(pa.scalar(wanted.epoch, pa.int64()), batch.num_rows)
            arrays = [epochs if name == "epoch" else batch.column(name) for name in RECORDS.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def _gaps(wanted: SeqRange, row: dict[str, Any]) -> Iterator[Gap]:
    if wanted.start.epoch != wanted.epoch:
        # The life we were reading ended; how far it had come by then is not known any more.
        yield Gap(wanted.topic, wanted.start.epoch, wanted.start.seq + 1, None, row["reason"])
    if row["gap_from"] <= row["gap_to"]:
        yield Gap(wanted.topic, wanted.epoch, row["gap_from"], row["gap_to"], row["reason"])

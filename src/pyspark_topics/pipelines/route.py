"""`route`: topics → a query → topics, exactly once, and loss goes along.

    source → sieve (tombstones set aside) → the user's SQL or function → stage ┐
                      └──────────── tombstones as records ─────────────────────┴→ one commit per micro-batch

Spark keeps offsets and state in a checkpoint. A micro-batch is committed at the server under the query's id
and its number, so a batch that runs again after a crash is recognised there.
"""

import inspect
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import ORIGIN, Offsets, Position, from_json
from pyspark_topics.options import WriteOptions
from pyspark_topics.payload import as_records, parse_data
from pyspark_topics.pipelines import settings
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.parquet import local_path
from pyspark_topics.pipelines.settings import FORMATS
from pyspark_topics.pipelines.tombstones import Sieve, as_rows
from pyspark_topics.session import beside
from pyspark_topics.staging import Staged, stage_frame
from pyspark_topics.stream import publish_cursors
from topics.client import Client, Refused

# All records of all topics of the route.
RECORDS = "records"


@dataclass
class Views(Mapping[str, DataFrame]):
    """Frames by name, made when they are asked for: a stream that no query names is not read."""

    makers: dict[str, Callable[[], DataFrame]]

    def __post_init__(self) -> None:
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            self._made[name] = self.makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def prepared(frame: DataFrame, schema: str | None, watermark: str | None) -> DataFrame:
    """Records as the query wants them."""
    if schema is not None:
        frame = parse_data(frame, schema)
    return frame if watermark is None else frame.withWatermark("ts", watermark)


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """A table of the lake or a file, as it is when the route starts."""
    full = os.path.abspath(path)
    if not os.path.exists(full):
        raise PipelineFailed(f"there is no table at {full}")
    if os.path.isdir(os.path.join(full, "_delta_log")):
        from deltalake import DeltaTable

        return spark.read.parquet(*(local_path(uri) for uri in DeltaTable(full).file_uris()))
    kind = FORMATS.get(Path(full).suffix, "parquet")
    return spark.read.options(**({"header": "true", "inferSchema": "true"} if kind == "csv" else {})).load(
        full, format=kind
    )


def by_sql(spark: SparkSession, query: str, views: Views) -> DataFrame:
    # SQL does not tell `Orders` from `orders`: a name that is written just so comes last, and counts.
    for name in sorted(views, key=lambda name: name in query):
        if name.lower() in query.lower():  # perhaps only inside a text, which does no harm
            views[name].createOrReplaceTempView(f"`{name}`")
    return spark.sql(query)


def by_function(function: Callable[..., Any], views: Views, spark: SparkSession) -> DataFrame:
    """Each parameter gets the view of its name."""
    offered: dict[str, Any] = {"spark": spark, "views": views}
    arguments = {}
    for name in inspect.signature(function).parameters:
        if name not in offered and name not in views:
            known = ", ".join([*views, *offered])
            raise PipelineFailed(f'{function.__name__} has a parameter "{name}", but a route offers: {known}')
        arguments[name] = offered[name] if name in offered else views[name]
    result = function(**arguments)
    if not isinstance(result, DataFrame):
        raise PipelineFailed(f"{function.__name__} has to return a DataFrame, not {type(result).__name__}")
    return result


log = logging.getLogger(__name__)

# How often a running query is asked whether it still runs.
LOOK_EVERY_S = 0.2
# A batch that is being committed is waited for when the pipeline is told to end.
FINISH_S = 20.0


class Route(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "route"
    follows: ClassVar[bool] = True

    topics: list[str] = []
    # A regular expression for whole names, instead of `topics`.
    pattern: str | None = None
    # The derived topic. Without it, every row names its target in a column `topic`.
    into: str | None = None
    # Where tombstones go: to `into`, unless given.
    losses_into: str | None = None
    sql: str | None = None
    # Instead of SQL: "file.py:function"; in a Python declaration, the function itself.
    python: Any = None
    # Columns of `data`, like "sku STRING, qty INT", or "variant"; without it, `data` is text.
    schema: str | None = None
    # More tables for joins: name → path.
    tables: dict[str, str] = {}
    # How late records may be, by their `ts`, for windows and joins: "10 minutes".
    watermark: str | None = None
    mode: Literal["append", "update", "complete"] = "append"
    start: Literal["earliest", "latest"] = "earliest"
    # A micro-batch at most this often, and of at most so many records.
    every_s: float = 1.0
    max_records: int = 200_000
    # Where the declaration lies; empty while it is not known.
    _folder: str = ""

    def __post_init__(self) -> None:
        settings.check_topics(self.topics, self.pattern)
        for target in (self.into, self.losses_into):
            settings.check_name(target)
            settings.check_not_read(target, self.topics, self.pattern)
        if (self.sql is None) == (self.python is None):
            raise ValueError("give either sql or python")
        if self.into is None and self.losses_into is None:
            raise ValueError(
                "give into, the derived topic, or losses_into if the rows name their topics: "
                "what the sources lose has to be announced somewhere"
            )
        if isinstance(self.python, str):
            if self._folder:
                settings.load_function(self.python, Path(self._folder))
        elif self.python is not None and not callable(self.python):
            raise ValueError('python has to be like "routes.py:enrich"')
        if self.every_s < 0 or self.max_records <= 0:
            raise ValueError("every_s has to be 0 or more, max_records above 0")

    def run(self, context: Context) -> Outcome:
        with context.server.client() as client:
            run = _RunningRoute(self, context, client)
            run.follow()
        return Outcome(facts={"read": run.read, "written": run.written})

    # --- the query --------------------------------------------------------------------------------------

    def result(self, spark: SparkSession, sieve: Sieve, context: Context) -> DataFrame:
        views = self._views(spark, sieve, context)
        if self.sql is not None:
            result = by_sql(spark, self.sql, views)
        else:
            result = by_function(self._function(), views, spark)
        if not result.isStreaming:
            raise PipelineFailed(f"the query reads none of its topics; it can name: {', '.join(views)}")
        return as_records(result, self.into)

    def _function(self) -> Callable[..., Any]:
        if isinstance(self.python, str):
            return settings.load_function(self.python, Path(self._folder))
        function: Callable[..., Any] = self.python
        return function

    def _views(self, spark: SparkSession, sieve: Sieve, context: Context) -> Views:
        def stream(topics: list[str]) -> Callable[[], DataFrame]:
            options = settings.source_options(
                context.server,
                topics,
                self.pattern,
                startingOffsets=self.start,
                maxOffsetsPerTrigger=str(self.max_records),
            )
            reader = spark.readStream.format("topics").options(**options)
            return lambda: prepared(sieve.through(reader.load()), self.schema, self.watermark)

        makers = {name: stream([name]) for name in self.topics}
        makers[RECORDS] = stream(self.topics)
        for name, path in self.tables.items():
            makers[name] = lambda path=path: read_table(spark, path)  # type: ignore[misc]
        return Views(makers)


@dataclass
class _RunningRoute:
    """One start of a route, from its checkpoint on."""

    route: Route
    context: Context
    client: Client
    read: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self._checkpoint = self.context.state / "checkpoint"
        self._sieve = Sieve(self.context.spark.sparkContext)
        # Held while a micro-batch is written, and while the query is ended.
        self._writing = threading.Lock()
        self._identity: str | None = None
        self._first = True

    def follow(self) -> None:
        context = self.context
        # Routes must not see each other's views.
        result = self.route.result(beside(context.spark), self._sieve, context)
        writer = (
            result.writeStream.foreachBatch(self._write)
            .outputMode(self.route.mode)
            .queryName(context.name)
            .option("checkpointLocation", str(self._checkpoint))
        )
        if context.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self.route.every_s * 1000)} milliseconds")
        query = writer.start()
        context.progress.say("running")
        while not context.stop.is_set():
            if query.awaitTermination(LOOK_EVERY_S):
                return
        self._end(query)

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
            self._sieve.take()
            target = self.route.into
            staged = stage_frame(frame, WriteOptions(self.context.server, target))
            count, tombstones = self._sieve.take()
            if tombstones:
                rows = as_rows(tombstones, self.route.losses_into)
                staged.put(self.client, "tombstones", [rows], target)
            self._commit(staged, batch)
            self.read += count
            self.written += staged.records
            lag = publish_cursors(self.client, self.context.name, self._moved(batch))
            self.context.progress.advance(count, lag=lag, lost=len(tombstones))

    def _commit(self, staged: Staged, batch: int) -> None:
        try:
            staged.commit(self.client, self._query_id(), batch)
        except Refused as refusal:
            if refusal.code != "stage_conflict" or not self._first or not self._input_changed(batch):
                raise
            # It had been written before the crash, when its input was still whole. What was removed since
            # makes it impossible to compare, but not to know: the batch is in the topic, once.
            log.warning(
                "%s: batch %d was written before, and its input has changed since; going on behind it",
                self.context.name,
                batch,
            )
        self._first = False

    def _query_id(self) -> str:
        """The id that Spark keeps in the checkpoint, so it outlives this process."""
        if self._identity is None:
            self._identity = json.loads((self._checkpoint / "metadata").read_text())["id"]
        return self._identity

    # --- what Spark planned -----------------------------------------------------------------------------

    def _offsets(self, batch: int) -> Offsets:
        """From Spark's own plan of a batch: a line per source, behind a version and a line of its own."""
        path = self._checkpoint / "offsets" / str(batch)
        if not path.exists():
            return {}
        offsets: Offsets = {}
        for line in path.read_text().splitlines()[2:]:
            if line.startswith("{"):
                offsets.update(from_json(json.loads(line)))
        return offsets

    def _moved(self, batch: int) -> Offsets:
        before = self._offsets(batch - 1)
        return {topic: at for topic, at in self._offsets(batch).items() if before.get(topic) != at}

    def _input_changed(self, batch: int) -> bool:
        """Whether something of what this batch reads has been deleted, dropped, or lost."""
        before = self._offsets(batch - 1)
        for topic, end in self._moved(batch).items():
            start = before.get(topic, Position(ORIGIN, end.epoch))
            try:
                ledger = self.client.ledger(topic)
            except Refused:
                return True  # the topic is gone
            if not start.epoch == end.epoch == ledger["epoch"]:
                return True
            if any(gone["from"] <= end.seq and gone["to"] > start.seq for gone in ledger["ranges"]):
                return True
        return False

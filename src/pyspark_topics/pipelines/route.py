"""`route`: topics → a query → topics, exactly once, and loss goes along.

    source → tombstone filter → the user's SQL or function → stage ───────────┐
                               └──────── tombstones as records ───────────────┴→ one commit per micro-batch

Spark keeps offsets and state in a checkpoint. A micro-batch is committed at the server under the query's id
and its number, so a batch that runs again after a crash is recognised there.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import Offsets
from pyspark_topics.options import ServerOptions, WriteOptions, parse_read, source_options
from pyspark_topics.payload import MALFORMED, as_records, parse_data
from pyspark_topics.pipelines.context import (
    Check,
    Context,
    Mistakes,
    Outcome,
    attempted,
    check_name,
    check_not_read,
    check_table,
    check_topics,
    load_function,
    schema_mistakes,
)
from pyspark_topics.pipelines.joined import read_table
from pyspark_topics.pipelines.micro_batches import RunningRoute, TombstoneFilter
from pyspark_topics.pipelines.state import Checkpoint, StoredPath
from pyspark_topics.rows import EVENT_TS, SinkRows, spark_schema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import beside
from pyspark_topics.subscription import subscribed

# The text of a record while its parsed form is looked at.
_TEXT = "__text"
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


def prepared(
    frame: DataFrame, schema: str | None, watermark: str | None, event_ts: str | None = None
) -> DataFrame:
    """Records as the query wants them."""
    if schema is not None:
        frame = parse_data(frame, schema)
    if event_ts is not None:
        frame = frame.withColumn(EVENT_TS, f.expr(event_ts).cast("timestamp"))
    time = "ts" if event_ts is None else EVENT_TS
    return frame if watermark is None else frame.withWatermark(time, watermark)


def fitting(frame: DataFrame, schema: str) -> DataFrame:
    """Only records that fit; as they came."""
    parsed = parse_data(frame.withColumn(_TEXT, f.col("data")), schema)
    return parsed.where(f.col(MALFORMED).isNull()).withColumn("data", f.col(_TEXT)).drop(MALFORMED, _TEXT)


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
    # Where records go that do not fit `schema`, and result rows that are no record. Without it, the former
    # are in `malformed`, and the latter stop the route.
    errors_into: str | None = None
    sql: str | None = None
    # Instead of SQL: "file.py:function"; in a Python declaration, the function itself.
    python: Any = None
    # Columns of `data`, like "sku STRING, qty INT", or "variant"; without it, `data` is text.
    schema: str | None = None
    # More tables for joins: name → path.
    tables: dict[str, str] = {}
    # The records' own time, like "to_timestamp(data.at)": the column `event_ts`, by which `watermark` goes.
    event_ts: str | None = None
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
        check_topics(self.topics, self.pattern)
        for target in (self.into, self.losses_into, self.errors_into):
            check_name(target)
            check_not_read(target, self.topics, self.pattern)
        if (self.sql is None) == (self.python is None):
            raise ValueError("give either sql or python")
        if self.into is None and self.losses_into is None:
            raise ValueError(
                "give into, the derived topic, or losses_into if the rows name their topics: "
                "what the sources lose has to be announced somewhere"
            )
        if isinstance(self.python, str):
            if self._folder:
                load_function(self.python, Path(self._folder))
        elif self.python is not None and not callable(self.python):
            raise ValueError('python has to be like "routes.py:enrich"')
        for path in self.tables.values():
            check_table(path)
        if self.every_s < 0 or self.max_records <= 0:
            raise ValueError("every_s has to be 0 or more, max_records above 0")

    def mistakes(self, check: Check) -> Mistakes:
        if isinstance(check.state, StoredPath):  # Spark has to reach the object store
            checkpoint = partial(Checkpoint, check.state / check.name, check.session())
            yield from attempted("state", checkpoint)
        spark = beside(check.session())
        mistakes = schema_mistakes(self.schema)
        for name, path in self.tables.items():
            mistakes += attempted(f"tables.{name}", partial(read_table, spark, path, check.storage))
        mistakes = mistakes or self._time_mistakes(spark, check.server)
        if not mistakes:

            def look() -> None:
                result = self.result(spark, TombstoneFilter(spark.sparkContext), check.server, check.storage)
                SinkRows.of(result.schema, WriteOptions(check.server, self.into))
                _refuse_unsupported(spark, result, self.mode)

            mistakes = attempted("sql" if self.sql is not None else "python", look)
        yield from mistakes

    def _time_mistakes(self, spark: SparkSession, server: ServerOptions) -> list[tuple[str, str]]:
        """The settings of time, tried without the query, so that the right one of them is named."""
        if self.event_ts is None and self.watermark is None:
            return []
        columns = parse_read({**server.options, "subscribe": "any", "loss": "ignore"})
        none = spark.createDataFrame([], spark_schema(columns))
        return attempted("event_ts", lambda: prepared(none, self.schema, None, self.event_ts)) or attempted(
            "watermark", lambda: prepared(none, self.schema, self.watermark, self.event_ts).schema
        )

    def run(self, context: Context) -> Outcome:
        with context.server.client() as client, context.server.client() as looking:
            run = RunningRoute(self, context, client, looking)
            run.follow()
        errors = {} if self.errors_into is None else {"errors": run.errors}
        return Outcome(facts={"read": run.read, "written": run.written, **errors})

    def heads(self, context: Context, client: TopicsClient) -> Offsets:
        """Return the current heads, where a route with `start = "latest"` begins."""
        options = parse_read(source_options(context.server, self.topics, self.pattern))
        return {name: view.end for name, view in subscribed(client, options)[0].items()}

    def missing(self, names: list[str], context: Context, client: TopicsClient) -> list[str]:
        """Which of these topics are not there."""
        return subscribed(client, parse_read(source_options(context.server, names, None)))[1]

    # --- the query --------------------------------------------------------------------------------------

    def result(
        self,
        spark: SparkSession,
        tombstone_filter: TombstoneFilter,
        server: ServerOptions,
        storage: Mapping[str, str] | None = None,
    ) -> DataFrame:
        views = self._views(spark, tombstone_filter, server, storage)
        if self.sql is not None:
            result = by_sql(spark, self.sql, views)
        else:
            named = isinstance(self.python, str)
            function = load_function(self.python, Path(self._folder)) if named else self.python
            result = by_function(function, views, spark)
        if not result.isStreaming:
            raise PipelineFailed(f"the query reads none of its topics; it can name: {', '.join(views)}")
        records = as_records(result, self.into)
        names_topics = self.into is None and "topic" in records.columns
        return self._going_elsewhere(records) if names_topics else records

    def _going_elsewhere(self, records: DataFrame) -> DataFrame:
        """Rows name their topics: one that names a topic of this route would come back for ever."""
        target = f.col("topic")
        is_read = target.isin(self.topics)
        if self.pattern is not None and "(?" not in self.pattern:
            # Spark's patterns are Python's, but for groups that have names or look around.
            is_read = target.rlike(f"^(?:{self.pattern})$")
        why = f.concat(
            f.lit("it would read what it writes: a row names "), target, f.lit(", one of its topics")
        )
        return records.withColumn("topic", f.when(is_read, f.raise_error(why)).otherwise(target))

    def _prepared(self, frame: DataFrame) -> DataFrame:
        if self.schema is not None and self.errors_into is not None:
            # The others are read, and written where they belong, beside the query.
            frame = fitting(frame, self.schema)
        return prepared(frame, self.schema, self.watermark, self.event_ts)

    def _views(
        self,
        spark: SparkSession,
        tombstone_filter: TombstoneFilter,
        server: ServerOptions,
        storage: Mapping[str, str] | None,
    ) -> Views:
        def stream(topics: list[str]) -> Callable[[], DataFrame]:
            options = source_options(
                server,
                topics,
                self.pattern,
                startingOffsets=self.start,
                maxOffsetsPerTrigger=str(self.max_records),
            )
            reader = spark.readStream.format("topics").options(**options)
            return lambda: self._prepared(tombstone_filter.through(reader.load()))

        makers = {name: stream([name]) for name in self.topics}
        makers[RECORDS] = stream(self.topics)
        for name, path in self.tables.items():
            makers[name] = partial(read_table, spark, path, storage)
        return Views(makers)


def _refuse_unsupported(spark: SparkSession, result: DataFrame, mode: str) -> None:
    """Have Spark check what it otherwise finds when the query starts, such as an aggregate's output mode."""
    package = spark._jvm.org.apache.spark.sql
    asked = getattr(package.streaming.OutputMode, mode.capitalize())()
    plan = result._jdf.queryExecution().analyzed()
    package.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, asked)

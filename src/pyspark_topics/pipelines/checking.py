"""`topics pipeline check`: everything that can be told about pipelines before they run. Nothing is written.

declaration → settings → query, schema, files and tables, as Spark and delta-rs see them → mistakes
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deltalake import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_topics.errors import ForUsers, PipelineFailed, SparkDoesNotStart, did_you_mean
from pyspark_topics.options import Server, WriteOptions, parse_read
from pyspark_topics.pipelines.archive import Archive
from pyspark_topics.pipelines.audit import Audit
from pyspark_topics.pipelines.context import Pipeline
from pyspark_topics.pipelines.delta_table import is_table, open_table, place
from pyspark_topics.pipelines.erase import Erase
from pyspark_topics.pipelines.files import FileFormat, matching, none_matches, unreadable
from pyspark_topics.pipelines.joined import read_table
from pyspark_topics.pipelines.lake import is_archived
from pyspark_topics.pipelines.load import Load
from pyspark_topics.pipelines.micro_batches import Sieve
from pyspark_topics.pipelines.replay import Replay
from pyspark_topics.pipelines.route import Route, prepared
from pyspark_topics.pipelines.runner import explain
from pyspark_topics.pipelines.state import Checkpoint, StatePath, StoredPath
from pyspark_topics.pipelines.table_schema import RECORDS, Columns, misfits, refuse_unlike
from pyspark_topics.rows import Rows, spark_schema
from pyspark_topics.session import beside
from topics.client import TopicsError

# A server that does not answer is no mistake in a declaration.
PATIENCE_S = 1.0

Mistakes = Iterator[tuple[str, str]]


@dataclass
class Check:
    """All mistakes of some pipelines, as sentences that name the pipeline and the setting."""

    pipelines: Mapping[str, Pipeline]
    server: Server
    session: Callable[[], SparkSession]
    # Options of delta-rs.
    storage: Mapping[str, str] = field(default_factory=dict)
    # Where the JVM writes what it has to say.
    log: Path = Path(os.devnull)
    # Of the file; a folder is made where it is missing, and an object store has to be in Spark's reach.
    state: StatePath = Path(os.devnull)

    def mistakes(self) -> Iterator[str]:
        known = self._topics()
        for name, pipeline in self.pipelines.items():
            try:
                for setting, sentence in self._of(name, pipeline, known):
                    yield f"pipeline {name}: {setting}: {sentence}"
            except SparkDoesNotStart as failure:
                # Nothing more can be told without it.
                yield f"spark: it does not start: {_reason(failure.__cause__, self.log)}"
                return

    def _topics(self) -> set[str] | None:
        """Of the server, and those that these pipelines make; None if the server does not answer."""
        server = Server(self.server.url, self.server.api_key, PATIENCE_S)
        try:
            with server.client() as client:
                found = set(client.topic_names())
        except TopicsError:
            return None
        fields = ("into", "losses_into", "errors_into")
        made = [getattr(one, field, None) for one in self.pipelines.values() for field in fields]
        return found | {name for name in made if name is not None}

    def _of(self, name: str, pipeline: Pipeline, known: set[str] | None) -> Mistakes:
        for topic in getattr(pipeline, "topics", []):
            # One that is like no other may be there later.
            hint = "" if known is None or topic in known else did_you_mean(topic, known)
            if hint:
                yield "topics", f'there is no topic "{topic}"{hint}'
        if isinstance(pipeline, Route):
            yield from self._checkpoint(name)
            yield from self._route(pipeline)
        elif isinstance(pipeline, Load):
            yield from self._load(pipeline)
        elif isinstance(pipeline, Archive):
            yield from self._table(pipeline.table, pipeline.columns)
        elif isinstance(pipeline, Replay):
            mistakes = list(self._table(pipeline.table))
            yield from mistakes
            if not mistakes and not self._holds(pipeline.table, pipeline.topic):
                yield "topic", f'{pipeline.table} holds nothing of topic "{pipeline.topic}"'
        elif isinstance(pipeline, Audit | Erase):
            word, tables = (
                ("tables", pipeline.tables) if isinstance(pipeline, Erase) else ("table", [pipeline.table])
            )
            for table in tables:
                if table is not None:
                    yield from self._table(table, word=word)

    def _table(self, path: str, columns: Columns | None = None, word: str = "table") -> Mistakes:
        """`columns` if it is to be written to; then it need not be there yet."""
        where = place(path, self.storage)

        def looked() -> None:
            if is_table(where):
                why = next(misfits(open_table(where), Schema.from_arrow(RECORDS)), None)
                if why is not None:
                    raise PipelineFailed(f"{where.uri} is a table of something else: {why}")
                if columns is not None:
                    refuse_unlike(open_table(where), columns, where.uri)
            elif columns is None:
                if not self._archives(path):
                    raise PipelineFailed(f"there is no table at {where.uri}")
            elif not where.is_free():
                raise PipelineFailed(f"{where.uri} has files and is no Delta table")

        yield from _said(word, looked)

    def _holds(self, table: str, topic: str) -> bool:
        """Now, or when an archive of these pipelines has run."""
        where = place(table, self.storage)
        return any(
            topic in archive.topics or re.fullmatch(archive.pattern or "", topic)
            for archive in self._archives(table)
        ) or (is_table(where) and is_archived(where, topic))

    def _archives(self, table: str) -> list[Archive]:
        """Those of these pipelines that make this table."""
        uri = place(table).uri
        archives = [one for one in self.pipelines.values() if isinstance(one, Archive)]
        return [one for one in archives if place(one.table).uri == uri]

    # --- queries ----------------------------------------------------------------------------------------

    def _checkpoint(self, name: str) -> Mistakes:
        """Where Spark is to keep the state of a route, if that is an object store."""
        if isinstance(self.state, StoredPath):
            spark = self.session()
            yield from _said("state", partial(Checkpoint, self.state / name, spark))

    def _route(self, route: Route) -> Mistakes:
        spark = beside(self.session())
        mistakes = list(_schema(route.schema))
        for name, path in route.tables.items():
            mistakes += _said(f"tables.{name}", partial(read_table, spark, path, self.storage))
        mistakes += [] if mistakes else self._times(spark, route)
        if not mistakes:
            sieve = Sieve(spark.sparkContext)
            word = "sql" if route.sql is not None else "python"

            def analysed() -> None:
                result = route.result(spark, sieve, self.server, self.storage)
                Rows.of(result.schema, WriteOptions(self.server, route.into))
                _refuse_unsupported(spark, result, route.mode)

            mistakes += _said(word, analysed)
        yield from mistakes

    def _times(self, spark: SparkSession, route: Route) -> list[tuple[str, str]]:
        """By which time a route goes, before its query is looked at: whose mistake it is can then be told."""
        if route.event_ts is None and route.watermark is None:
            return []
        columns = parse_read({**self.server.options, "subscribe": "any", "loss": "ignore"})
        none = spark.createDataFrame([], spark_schema(columns))
        mistakes = _said("event_ts", lambda: prepared(none, route.schema, None, route.event_ts))
        if not mistakes:
            mistakes = _said(
                "watermark", lambda: prepared(none, route.schema, route.watermark, route.event_ts).schema
            )
        return mistakes

    def _load(self, load: Load) -> Mistakes:
        found: list[str] = []
        for pattern in load.files:
            matches = sorted(map(os.path.abspath, matching(pattern)))
            if not matches:
                yield "files", none_matches(pattern)
            refused = [why for why in map(unreadable, matches) if why is not None]
            if refused:
                more = f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else ""
                yield "files", refused[0] + more
            found += [path for path in matches if unreadable(path) is None]
        if load.schema is not None:
            self.session()  # without which no schema can be read
        mistakes = list(_schema(load.schema))
        yield from mistakes
        if found and not mistakes:
            spark = beside(self.session())

            def analysed() -> None:
                frame = FileFormat.of(load, found[0]).frame(spark, found[0])
                Rows.of(frame.schema, WriteOptions(self.server, load.into))

            yield from _said("select" if load.select else "files", analysed)


def _reason(error: BaseException | None, log: Path) -> str:
    """What the JVM raised: in its log, or behind the line that says who called it."""
    lines = [*log.read_text(errors="replace").splitlines(), *str(error).splitlines()]
    raised = [line for line in lines if "Exception: " in line]
    return (raised or lines or [type(error).__name__])[0].strip(": ")


def _said(word: str, attempt: Callable[[], object]) -> list[tuple[str, str]]:
    """What it says if it fails, whatever that is: code of the user may be part of it."""
    try:
        attempt()
    except ForUsers as mistake:
        return [(word, str(mistake))]
    except Exception as error:
        return [(word, explain(error))]
    return []


def _schema(text: str | None) -> list[tuple[str, str]]:
    if text is None or text.strip().lower() == "variant":
        return []
    return _said("schema", lambda: StructType.fromDDL(text))


def _refuse_unsupported(spark: SparkSession, result: DataFrame, mode: str) -> None:
    """What Spark itself finds out when the query starts: an aggregate needs another mode, say."""
    package = spark._jvm.org.apache.spark.sql
    asked = getattr(package.streaming.OutputMode, mode.capitalize())()
    plan = result._jdf.queryExecution().analyzed()
    package.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, asked)

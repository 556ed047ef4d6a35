"""`spark.read`: one look at the topics, then seq ranges shared out over tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from pyspark_topics.errors import OptionError, did_you_mean
from pyspark_topics.offsets import Offsets, StreamOffset, TopicView
from pyspark_topics.options import SourceOptions
from pyspark_topics.partition_reader import read_task
from pyspark_topics.partitions import ScanFilter, SealedFiles, TaskPartition, plan, ranges_between
from pyspark_topics.rows import ReadSchema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.subscription import end_of, start_of, subscribed

# Filters that say where values begin and where they end, and how far from the value in the filter.
_FROM = {spark.EqualTo: 0, spark.GreaterThanOrEqual: 0, spark.GreaterThan: 1}
_UP_TO = {spark.EqualTo: 0, spark.LessThanOrEqual: 0, spark.LessThan: -1}


@dataclass(frozen=True)
class Narrowing:
    """Bounds that hold for every row the query can use. Each filter can only tighten them."""

    after_seq: int = 0
    to_seq: int | None = None
    since_ts: int | None = None
    until_ts: int | None = None
    tag: Any = None
    nodes: tuple[str, ...] = ()

    def with_filter(self, one: spark.Filter) -> Self:
        if (
            isinstance(one, spark.Not)
            and isinstance(one.child, spark.EqualTo)
            and one.child.attribute == ("node",)
        ):
            return replace(self, nodes=(*self.nodes, str(one.child.value)))
        attribute, value = getattr(one, "attribute", None), getattr(one, "value", None)
        if attribute == ("seq",) and isinstance(value, int):
            return self._with_seq(one, value)
        if attribute == ("ts",) and isinstance(value, datetime):
            return self._with_ts(one, value)
        if attribute == ("tag",) and isinstance(value, str) and self.tag is None:
            return self._with_tag(one, value)
        return self

    def _with_seq(self, one: spark.Filter, value: int) -> Self:
        first, last = _FROM.get(type(one)), _UP_TO.get(type(one))
        after_seq = self.after_seq if first is None else max(self.after_seq, value + first - 1)
        to_seq = self.to_seq if last is None else _lower(self.to_seq, value + last)
        return replace(self, after_seq=after_seq, to_seq=to_seq)

    def _with_ts(self, one: spark.Filter, value: datetime) -> Self:
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        # Records have milliseconds, Spark microseconds: keep the whole millisecond at either end.
        ms = int(moment.timestamp() * 1000)
        since_ts = max(self.since_ts or 0, ms) if type(one) in _FROM else self.since_ts
        until_ts = _lower(self.until_ts, max(ms + 2, 0)) if type(one) in _UP_TO else self.until_ts
        return replace(self, since_ts=since_ts, until_ts=until_ts)

    def _with_tag(self, one: spark.Filter, value: str) -> Self:
        if isinstance(one, spark.EqualTo):
            return replace(self, tag=["tag", "Eq", value])
        if isinstance(one, spark.StringStartsWith):
            return replace(self, tag=["tag", "Glob", value + "*"])
        return self

    def between(self, start: StreamOffset, end: StreamOffset) -> tuple[StreamOffset, StreamOffset]:
        if not start.leads_to(end):  # a start in another life of the topic has to be announced as it is
            return start, end
        low = max(start.seq, min(self.after_seq, end.seq))
        high = end.seq if self.to_seq is None else max(min(end.seq, self.to_seq), low)
        return StreamOffset(low, start.epoch), StreamOffset(high, end.epoch)

    def filter(self, options: SourceOptions) -> ScanFilter:
        """Together with what the options say. A tag of the options wins: only one fits in a scan."""
        return ScanFilter(
            (*options.nodes, *self.nodes),
            self.tag if options.tag is None else options.tag,
            self.since_ts,
            self.until_ts,
        )


def _lower(known: int | None, other: int) -> int:
    return other if known is None else min(known, other)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = ReadSchema.of(schema, options)
        self.narrowing = Narrowing()

    def partitions(self) -> list[TaskPartition]:
        with self.options.server.client() as client:
            views, missing = subscribed(client, self.options)
            if missing:
                hint = did_you_mean(missing[0], client.topic_names())
                raise OptionError(
                    f'option "subscribe" names "{missing[0]}", and there is no such topic{hint}'
                )
            start, end = self._ends(client, views)
            if self.options.archive is None:
                ranges = ranges_between(start, end, views)
            else:
                # Loaded where it is needed: it needs pipelines, which read topics.
                from pyspark_topics.archived import existing

                archived = existing(self.options)
                ranges = list(archived.cut(ranges_between(start, end, archived.look(views))))
            tasks = plan(SealedFiles(client), ranges, self.options)
        return tasks or [TaskPartition()]

    def _ends(self, client: TopicsClient, views: dict[str, TopicView]) -> tuple[Offsets, Offsets]:
        start, end = {}, {}
        for name, view in views.items():
            first, last = start_of(client, view, self.options), end_of(client, view, self.options)
            self._check_life(view, first)
            if last.seq < first.seq <= view.head and first.epoch == last.epoch:
                raise OptionError(
                    f'the read of topic "{name}" ends at {last.seq}, before its start {first.seq}'
                )
            start[name], end[name] = self.narrowing.between(first, last)
        return start, end

    def _check_life(self, view: TopicView, first: StreamOffset) -> None:
        """A start in a life that is over is announced; an end there would stop anywhere in the next one."""
        meant = self.options.ending.epochs.get(view.name, view.epoch)
        if meant not in (view.epoch, first.epoch):
            raise OptionError(
                f'option "endingOffsets" means epoch {meant} of topic "{view.name}", which is in its epoch '
                f"{view.epoch} now: it was deleted and made again"
            )

    def read(self, partition: TaskPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, self.schema, self.narrowing.filter(self.options), partition)


class PushdownReader(BatchReader):
    """Lets Spark hand its filters over. A class of its own: the method alone makes Spark want a switch."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            self.narrowing = self.narrowing.with_filter(one)
        # Narrowing reads less, not exactly what was asked for: Spark goes on to filter.
        return filters

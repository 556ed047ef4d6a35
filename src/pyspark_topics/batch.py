"""`spark.read`: one look at the topics, then seq ranges shared out over tasks."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from pyspark_topics.direct import SealedFiles
from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import Offsets, Position, TopicView
from pyspark_topics.options import ReadOptions
from pyspark_topics.partitions import TaskPartition, ranges_between
from pyspark_topics.pushdown import Narrowing
from pyspark_topics.reading import plan, read_task
from pyspark_topics.schema import ReadSchema
from pyspark_topics.subscription import end_of, start_of, subscribed
from topics.client import Client


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = ReadSchema.of(schema, options)
        self.narrowing = Narrowing()

    def partitions(self) -> list[TaskPartition]:
        with self.options.server.client() as client:
            views, missing = subscribed(client, self.options)
            if missing:
                raise OptionError(f'option "subscribe" names "{missing[0]}", and there is no such topic')
            start, end = self._ends(client, views)
            tasks = plan(SealedFiles(client), ranges_between(start, end, views), self.options)
        return tasks or [TaskPartition()]

    def _ends(self, client: Client, views: dict[str, TopicView]) -> tuple[Offsets, Offsets]:
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

    def _check_life(self, view: TopicView, first: Position) -> None:
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

"""`spark.read`: one look at the topics, then seq ranges shared out over tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from pyspark_topics.direct import Files, Renewal, SegmentReader
from pyspark_topics.errors import OptionError
from pyspark_topics.loss import LossPolicy
from pyspark_topics.offsets import Offsets, Position, View
from pyspark_topics.options import ReadOptions
from pyspark_topics.partitions import SeqRange, TaskPartition, ranges_between, split
from pyspark_topics.pushdown import Narrowing
from pyspark_topics.reading import RangeReader, ScanFilter
from pyspark_topics.schema import Shape
from pyspark_topics.subscription import end_of, start_of, subscribed
from topics.client import Client

RENEWAL_PATIENCE_S = 1.0


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.shape = Shape.of(schema, options)
        self.narrowing = Narrowing()

    def partitions(self) -> list[TaskPartition]:
        with self.options.server.client() as client:
            views = _existing(subscribed(client, self.options))
            start, end = self._ends(client, views)
            tasks = plan(Files(client), ranges_between(start, end, views), self.options)
        return tasks or [TaskPartition()]

    def _ends(self, client: Client, views: dict[str, View]) -> tuple[Offsets, Offsets]:
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

    def _check_life(self, view: View, first: Position) -> None:
        """A start in a life that is over is announced; an end there would stop anywhere in the next one."""
        meant = self.options.ending.epochs.get(view.name, view.epoch)
        if meant not in (view.epoch, first.epoch):
            raise OptionError(
                f'option "endingOffsets" means epoch {meant} of topic "{view.name}", which is in its epoch '
                f"{view.epoch} now: it was deleted and made again"
            )

    def read(self, partition: TaskPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, self.shape, self.narrowing.filter(self.options), partition)


class PushdownReader(BatchReader):
    """Lets Spark hand its filters over. A class of its own: the method alone makes Spark want a switch."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            self.narrowing = self.narrowing.with_filter(one)
        # Narrowing reads less, not exactly what was asked for: Spark goes on to filter.
        return filters


def plan(files: Files, ranges: list[SeqRange], options: ReadOptions) -> list[TaskPartition]:
    return split(files.along(ranges) if options.direct else ranges, options)


def read_task(
    options: ReadOptions, shape: Shape, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """What an executor does for Spark's source."""
    return (batch for _, batch in read_ranges(options, shape, chosen, partition))


def read_ranges(
    options: ReadOptions, shape: Shape, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[tuple[SeqRange, pa.RecordBatch]]:
    """Each range from its file where that is possible, else from the server."""
    with (
        options.server.client() as client,
        # Of its own, because a scan may be under way; and not patient, because files are read without it.
        replace(options.server, patience_s=RENEWAL_PATIENCE_S).client() as keeper,
        closing(SegmentReader(shape, chosen)) as files,
    ):
        server = RangeReader(client, shape, LossPolicy(options.loss, shape), chosen)
        leases = Renewal(keeper, partition.pins)
        for one in partition.ranges:
            leases.keep()
            for batch in (files if files.can_read(one) else server).read(one):
                yield one, batch
                leases.keep()


def _existing(found: dict[str, View | None]) -> dict[str, View]:
    for name, view in found.items():
        if view is None:
            raise OptionError(f'option "subscribe" names "{name}", and there is no such topic')
    return {name: view for name, view in found.items() if view is not None}

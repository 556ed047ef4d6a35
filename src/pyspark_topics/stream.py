"""`spark.readStream`: offsets with epochs, admission control, and a cursor the server can show."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import datasource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pyspark_topics.direct import SealedFiles
from pyspark_topics.offsets import NO_EPOCH, ORIGIN, Offsets, Position, TopicView, advance, from_json, to_json
from pyspark_topics.options import ReadOptions
from pyspark_topics.partitions import TaskPartition, ranges_between
from pyspark_topics.reading import plan, read_task
from pyspark_topics.scan import ScanFilter
from pyspark_topics.schema import ReadSchema
from pyspark_topics.subscription import start_of, subscribed
from topics.client import Client, Refused, Unreachable

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Spark keeps one of these for the life of a query, and asks it from one thread."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = ReadSchema.of(schema, options)
        self._client = options.server.client()
        self._files = SealedFiles(self._client)
        # Heads as the last look found them, and the ones a run with `availableNow` stops at.
        self._seen: dict[str, TopicView] = {}
        self._target: dict[str, TopicView] | None = None
        # When a batch was planned last.
        self._last_batch = time.monotonic()
        # Where the server was told that the query is.
        self._told: Offsets = {}

    def _look(self) -> dict[str, TopicView]:
        self._seen, _ = subscribed(self._client, self.options)
        return self._seen

    # --- where to read ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        views = self._look()
        offsets = {name: start_of(self._client, view, self.options) for name, view in views.items()}
        for name in self.options.topics:  # one that is not there yet will be read from its beginning
            offsets.setdefault(name, Position(ORIGIN, NO_EPOCH))
        return to_json(offsets)

    def getDefaultReadLimit(self) -> datasource.ReadLimit:  # noqa: N802 - Spark's name
        limit = self.options.max_offsets_per_trigger
        return datasource.ReadAllAvailable() if limit is None else datasource.ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._look()

    def latestOffset(self, start: dict[str, Any], limit: datasource.ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark asks when the batch before is done, and says how far that went: the next call of `commit`
        # only comes with the next batch.
        self._tell(from_json(start))
        views = self._look() if self._target is None else self._target
        if self._waits(from_json(start), views):
            return start
        most = limit.max_rows if isinstance(limit, datasource.ReadMaxRows) else None
        return to_json(advance(from_json(start), views.values(), most))

    def _waits(self, start: Offsets, views: dict[str, TopicView]) -> bool:
        """Whether there is too little for a micro-batch yet. What a run is to stop at is never too little."""
        least = self.options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        beginning = Position(ORIGIN, NO_EPOCH)
        waiting = sum(
            view.records_between(start.get(view.name, beginning), view.end) for view in views.values()
        )
        now = time.monotonic()
        if waiting < least and now - self._last_batch < self.options.max_trigger_delay_s:
            return True
        self._last_batch = now
        return False

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Shown in the query's progress beside where it stands: the difference is its lag."""
        return to_json({name: view.end for name, view in self._seen.items()})

    # --- reading ----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskPartition]:
        ranges = ranges_between(from_json(start), from_json(end), self._seen)
        return plan(self._files, ranges, self.options)

    def read(self, partition: TaskPartition) -> Iterator[pa.RecordBatch]:
        chosen = ScanFilter(self.options.nodes, self.options.tag)
        return read_task(self.options, self.schema, chosen, partition)

    # --- afterwards -------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        self._files.release()
        self._tell(from_json(end))

    def _tell(self, at: Offsets) -> None:
        moved = {topic: position for topic, position in at.items() if self._told.get(topic) != position}
        if self.options.consumer is not None and moved:
            publish_cursors(self._client, self.options.consumer, moved)
            self._told.update(moved)

    def stop(self) -> None:
        self._files.release()
        self._client.close()


def publish_cursors(client: Client, consumer: str, offsets: Offsets) -> int:
    """Tell the server how far a consumer has come; returns how many records wait there, as it answers.

    Nothing depends on it, so an outage only delays it.
    """
    lag = 0
    for topic, at in offsets.items():
        if at.epoch == NO_EPOCH:
            continue
        try:
            lag += client.put_cursor(topic, consumer, at.seq, at.epoch)["lag"]
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
        except Unreachable as outage:
            log.warning("cursor of %s not published: %s", consumer, outage)
            break
    return lag


def publish_end(query: StreamingQuery, url: str, consumer: str, api_key: str | None = None) -> int:
    """Tell the server where a query ended under a name that it did not give as its `consumer`.

    Returns how many records wait there.
    """
    progress = query.lastProgress
    sources = [] if progress is None else progress.sources
    with Client(url, api_key) as client:
        ends = (from_json(json.loads(source.endOffset)) for source in sources if source.endOffset)
        return sum(publish_cursors(client, consumer, end) for end in ends)

"""`spark.readStream`: offsets with epochs, limits for micro-batches, and a cursor that the server shows."""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import datasource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pyspark_topics.errors import OptionError
from pyspark_topics.offsets import (
    ELSEWHERE,
    NO_EPOCH,
    ORIGIN,
    Offsets,
    Stored,
    StreamOffset,
    TopicView,
    advance,
    from_json,
    heads_of,
    read_stored,
    seen_from,
    to_json,
)
from pyspark_topics.options import ServerOptions, SourceOptions
from pyspark_topics.partition_reader import read_task
from pyspark_topics.partitions import ScanFilter, SealedFiles, TaskPartition, plan, ranges_between
from pyspark_topics.rows import ReadSchema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.subscription import start_of, start_of_missing, subscribed
from topics.client import Refused, Unreachable

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Spark keeps one of these for the life of a query, and asks it from one thread."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = ReadSchema.of(schema, options)
        self._client = options.server.client()
        self._files = SealedFiles(self._client)
        # Heads as the last look found them, and the ones a run with `availableNow` stops at.
        self._seen: dict[str, TopicView] = {}
        self._target: dict[str, TopicView] | None = None
        # When a batch was planned last.
        self._last_batch = time.monotonic()
        # Spark asks for the beginning more than once, and a second answer could lie after the first batch.
        self._initial: Offsets | None = None
        # Where the server was told that the query is.
        self._told: Offsets = {}
        self._silent: dict[str, str] = {}
        self._archived: Any = None
        if options.archive is not None:
            # Loaded where it is needed: it needs pipelines, which read topics.
            from pyspark_topics.archived import existing

            self._archived = existing(options)

    def _look(self, *, patient: bool) -> dict[str, TopicView]:
        self._seen, _ = subscribed(self._client, self.options, patient=patient)
        if self._archived is not None:
            self._seen = self._archived.look(self._seen)
        return self._seen

    def _known(self, start: dict[str, Any]) -> Stored:
        """Offsets that Spark hands back, as they concern these servers."""
        offsets, homes, heads = read_stored(start)
        urls = self.options.server.urls
        for topic, url in homes.items():
            if url not in urls:
                raise OptionError(
                    f'the checkpoint has topic "{topic}" on {url}, and option "url" does not name that '
                    "server: add it, or start the query with a new checkpointLocation"
                )
        if len(urls) > 1:
            # Offsets of a query that had one server: that was the first, the others came later.
            known = (topic for topic, at in offsets.items() if at.epoch != NO_EPOCH)
            homes = {topic: homes.get(topic, urls[0]) for topic in known}
            self._client.expect(homes)
        return Stored(offsets, homes, heads)

    def _as_json(
        self,
        offsets: Offsets,
        before: Mapping[str, str] = MappingProxyType({}),
        heads: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        homes = {topic: self._client.home(topic) or before.get(topic, "") for topic in offsets}
        several = len(self.options.server.urls) > 1
        return to_json(offsets, homes if several else None, heads)

    def _tell_silence(self) -> None:
        """Topics of a server that does not answer stay where they are; that is to be seen somewhere."""
        silent = dict(self._client.silent)
        for url in silent.keys() - self._silent.keys():
            log.warning("%s: its topics wait, the others go on (%s)", url, silent[url])
        for url in self._silent.keys() - silent.keys():
            log.warning("%s answers again", url)
        self._silent = silent

    # --- where to read ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._initial is None:
            views = self._look(patient=True)
            offsets = {name: start_of(self._client, view, self.options) for name, view in views.items()}
            missing = (name for name in self.options.topics if name not in offsets)
            self._initial = offsets | {name: start_of_missing(name, self.options) for name in missing}
        return self._as_json(self._initial)

    def getDefaultReadLimit(self) -> datasource.ReadLimit:  # noqa: N802 - Spark's name
        limit = self.options.max_offsets_per_trigger
        return datasource.ReadAllAvailable() if limit is None else datasource.ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._look(patient=True)

    def latestOffset(self, start: dict[str, Any], limit: datasource.ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark asks when the batch before is done, and says how far that went: the next call of `commit`
        # only comes with the next batch.
        known = self._known(start)
        self._tell(known.offsets)
        views = self._look(patient=False) if self._target is None else self._target
        self._tell_silence()
        at = seen_from(known, {topic: self._client.home(topic) for topic in known.homes})
        if self._waits(at, views):
            return start
        most = limit.max_rows if isinstance(limit, datasource.ReadMaxRows) else None
        end = advance(at, views.values(), most)
        return self._as_json(end, known.homes, heads_of(end, views.values(), known.heads))

    def _waits(self, start: Offsets, views: dict[str, TopicView]) -> bool:
        """Return whether too few records wait for a micro-batch. A run with an end never waits."""
        least = self.options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        beginning = StreamOffset(ORIGIN, NO_EPOCH)
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
        return self._as_json({name: view.end for name, view in self._seen.items()})

    # --- reading ----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskPartition]:
        known = self._known(end)
        if self._archived is not None and not self._seen:
            self._look(patient=True)  # a batch that was planned before this reader was made
        before = self._known(start)
        ranges = ranges_between(seen_from(before, known.homes), known.offsets, self._seen, before.heads)
        if self._archived is not None:
            ranges = list(self._archived.cut(ranges))
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


def publish_cursors(client: TopicsClient, consumer: str, offsets: Offsets) -> int:
    """Tell the server how far a consumer has come; returns how many records wait there, as it answers.

    Nothing depends on it, so an outage only delays it.
    """
    lag = 0
    silent = set(client.silent)
    for topic, at in offsets.items():
        if at.epoch in (NO_EPOCH, ELSEWHERE) or client.home(topic) in silent:
            continue
        try:
            lag += client.put_cursor(topic, consumer, at.seq, at.epoch)["lag"]
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
        except Unreachable as outage:
            log.warning("cursor of %s not published: %s", consumer, outage)
            silent.add(client.home(topic))
    return lag


def publish_end(query: StreamingQuery, url: str, consumer: str, api_key: str | None = None) -> int:
    """Tell the server where a query ended under a name that it did not give as its `consumer`.

    Returns how many records wait there.
    """
    progress = query.lastProgress
    sources = [] if progress is None else progress.sources
    with ServerOptions(url, api_key).client() as client:
        ends = [read_stored(json.loads(source.endOffset)) for source in sources if source.endOffset]
        for end in ends:
            client.expect(end.homes)
        return sum(publish_cursors(client, consumer, end.offsets) for end in ends)

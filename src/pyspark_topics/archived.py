"""One reader over archive and log: what is gone from the log comes from the table of an archive.

driver:    floors lowered to what the table has → ranges → cut where the log begins
executor:  a stretch of the table, with its gaps │ a stretch of the log, and what left it meanwhile

Seqs up to where both the table reaches and the log begins come from the table, everything above from the log.
While a task reads the log, an archive may trim it. So a seq that is passed over in silence is looked for once
more: if it is below where the log begins by then, it may have been trimmed, and lies in the table.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pyspark_topics.errors import OptionError, PipelineFailed
from pyspark_topics.loss import RECREATED, LossPolicy
from pyspark_topics.offsets import ORIGIN, StreamOffset, TopicView
from pyspark_topics.options import STORAGE, SourceOptions
from pyspark_topics.partitions import ArchivedRange, ScanFilter, SeqRange
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.object_store import unknown_options
from pyspark_topics.pipelines.parquet import DataFile, TableRange, in_time, may_hold
from pyspark_topics.rows import LOSS_COLUMNS, ReadSchema
from pyspark_topics.servers import TopicsClient
from topics.client import Refused

# Above every seq: a life of a topic that is over has nothing in the log.
_NOWHERE = 2**63 - 1
_WITH_LOSS = ("seq", *LOSS_COLUMNS)


@dataclass
class Archived:
    """The table, as of the last look."""

    options: SourceOptions
    _views: dict[str, TopicView] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a reader of the stream as a whole, and do not need this part of it."""
        return {"options": self.options, "_views": self._views}

    @cached_property
    def _lake(self) -> Lake:
        assert self.options.archive is not None
        for name, hint in unknown_options(self.options.storage):
            raise OptionError(
                f'topics has no option "{STORAGE}{name}"{hint}: behind "{STORAGE}" stand options of delta-rs'
            )
        return Lake.existing(self.options.archive, self.options.storage)

    @cached_property
    def _files(self) -> list[DataFile]:
        return self._lake.files()

    def look(self, views: Mapping[str, TopicView]) -> dict[str, TopicView]:
        """Topics that begin where the table does."""
        self._lake.refresh()
        self._files = self._lake.files()
        self._views = dict(views)
        lowered = {}
        for name, view in views.items():
            held = self._holding(name, view.epoch, ORIGIN, self._lake.archived(name, view.epoch) or ORIGIN)
            first = min((one.low["seq"] for one in held), default=view.floor)
            lowered[name] = replace(view, floor=min(view.floor, first))
        return lowered

    def _holding(self, topic: str, epoch: int, first: int, last: int) -> list[DataFile]:
        return [one for one in self._files if may_hold(one, topic, epoch, first, last)]

    def cut(self, ranges: Iterable[SeqRange]) -> Iterator[SeqRange]:
        """Each range into what the table has and the log has not, and the rest."""
        for one in ranges:
            if one.start.epoch != one.epoch:  # the reader has to be told first, which the log does
                yield one
                continue
            view = self._views.get(one.topic)
            floor = view.floor if view is not None and view.epoch == one.epoch else _NOWHERE
            archived_range = self.archived_range(one.topic, one.epoch)
            last = max(min(archived_range.reached, floor - 1, one.to_seq), one.start.seq)
            if last > one.start.seq:
                expected = min(one.weight, last - one.start.seq)
                yield replace(one, to_seq=last, weight=expected, archived_range=archived_range)
            if last < one.to_seq:
                left = one.to_seq - max(last, floor - 1) if floor <= one.to_seq else 0
                yield replace(one, start=StreamOffset(last, one.epoch), weight=min(one.weight, left))

    def archived_range(self, topic: str, epoch: int) -> ArchivedRange:
        reached = self._lake.archived(topic, epoch) or ORIGIN
        held = self._holding(topic, epoch, ORIGIN, reached)
        files = sorted((one.low["seq"], one.high["seq"], one.path) for one in held)
        gaps = [
            (gap.gap_from, gap.gap_to, gap.reason)
            for gap in self._lake.all_gaps()
            if (gap.topic, gap.epoch) == (topic, epoch) and gap.gap_to is not None
        ]
        return ArchivedRange(reached, tuple(files), tuple(sorted(gaps)))


@dataclass
class ArchiveReader:
    """Stretches of the table, in the schema of the read."""

    options: SourceOptions
    schema: ReadSchema
    loss: LossPolicy
    filter: ScanFilter

    def read(self, wanted: SeqRange) -> Iterator[pa.RecordBatch]:
        assert wanted.archived_range is not None
        assert self.options.archive is not None
        where = location(self.options.archive, self.options.storage)
        first, last = wanted.start.seq + 1, wanted.to_seq
        for begin, end, reason in wanted.archived_range.gaps:
            if begin <= last and end >= first:
                yield from self.loss.announce(wanted.topic, max(begin, first), min(end, last), reason)
        for low, high, name in wanted.archived_range.files:
            if low <= last and high >= first:
                stretch = TableRange(where, (name,), wanted.topic, wanted.epoch, first, last)
                yield from self._rows(wanted.topic, stretch)

    def _rows(self, topic: str, stretch: TableRange) -> Iterator[pa.RecordBatch]:
        columns = self.schema.stored
        is_filtered = self.filter != ScanFilter()
        needed = dict.fromkeys([*columns, "seq", *(["node", "tag", "ts"] if is_filtered else [])])
        for part in stretch.parts(list(needed), _chosen(self.filter)):
            for batch in part.sort_by("seq").select(columns).to_batches():
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield self.schema.records(topic, batch.num_rows, found)


def _chosen(wanted: ScanFilter) -> ds.Expression:
    """Return the filter as an expression of Arrow, with the server's rules."""
    found = in_time(wanted.since_ts, wanted.until_ts)
    if wanted.nodes:
        found &= ~ds.field("node").isin(list(wanted.nodes)) | ds.field("node").is_null()
    tag = wanted.tag[2] if isinstance(wanted.tag, list) else wanted.tag
    if tag is not None:
        tags = ds.field("tag")
        found &= pc.starts_with(tags, tag[:-1]) if tag.endswith("*") else tags == tag
    return found


@dataclass
class UnionReader:
    """The log, and in its place the table wherever the log has let go of something that was archived."""

    client: TopicsClient
    options: SourceOptions
    schema: ReadSchema
    loss: LossPolicy
    filter: ScanFilter

    def __post_init__(self) -> None:
        self._table = ArchiveReader(self.options, self.schema, self.loss, self.filter)
        self._archived: Archived | None = None
        # Where the log began when that was asked, and whether that was after what was scanned last.
        self._floor = ORIGIN
        self._is_asked = False

    @staticmethod
    def inner(schema: ReadSchema) -> ReadSchema:
        """The columns to read from the log, so that gaps between seqs can be seen."""
        return ReadSchema((*schema.names, *(name for name in _WITH_LOSS if name not in schema.names)))

    def read(self, wanted: SeqRange, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = wanted.start.seq if wanted.start.epoch == wanted.epoch else ORIGIN
        self._floor = ORIGIN
        unread = wanted.unread  # of an earlier life, and told first
        for batch in batches:
            self._is_asked = False
            if batch.num_rows == 1 and batch.column("gap_from")[0].is_valid:
                gap = batch.select(["gap_from", "gap_to", "reason"]).to_pylist()[0]
                if (gap["gap_from"], gap["gap_to"]) == unread:
                    unread = None
                    yield from self.loss.announce(wanted.topic, **gap)
                    continue
                yield from self._lost(wanted, at, **gap)
                at = max(at, gap["gap_to"])
            elif batch.num_rows:
                yield from self._records(wanted, at, batch)
                at = max(at, batch.column("seq")[-1].as_py())
        self._is_asked = False
        if at < wanted.to_seq:
            yield from self._passed(wanted, at + 1, wanted.to_seq)

    def _records(self, wanted: SeqRange, at: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        seqs = batch.column("seq").to_numpy()
        before = np.concatenate(([at], seqs[:-1]))
        begin = 0
        batch = batch.select(list(self.schema.names))
        for row in np.flatnonzero(seqs - before > 1).tolist():
            found = list(self._passed(wanted, int(before[row]) + 1, int(seqs[row]) - 1))
            if found:
                if row > begin:
                    yield batch.slice(begin, row - begin)
                yield from found
                begin = row
        yield batch.slice(begin)

    def _passed(self, wanted: SeqRange, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Seqs that the log did not mention: deleted, left out by a filter, or trimmed since the plan.

        A filter leaves out many: the server is asked once for all of a batch, when that has arrived.
        """
        if self._floor <= first and not self._is_asked:
            self._floor, self._is_asked = self._begins(wanted), True
        yield from self._stored(wanted, first, min(last, self._floor - 1))

    def _begins(self, wanted: SeqRange) -> int:
        try:
            state = self.client.topic(wanted.topic)
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
            return _NOWHERE
        return int(state["earliest_seq"]) if state["epoch"] == wanted.epoch else _NOWHERE

    def _lost(
        self, wanted: SeqRange, at: int, gap_from: int, gap_to: int, reason: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield what the log reports as lost: from the table if it is there, otherwise as loss."""
        reached = self._archived_range(wanted, gap_to).reached if gap_from <= gap_to else ORIGIN
        last = max(min(reached, gap_to), gap_from - 1)
        yield from self._passed(wanted, at + 1, gap_from - 1)
        yield from self._stored(wanted, gap_from, last)
        if last < gap_to or gap_from > gap_to or reason == RECREATED:
            yield from self.loss.announce(wanted.topic, last + 1, gap_to, reason)

    def _stored(self, wanted: SeqRange, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if first > last:
            return
        archived_range = self._archived_range(wanted, last)
        end = min(last, archived_range.reached)
        if first <= end:
            start = StreamOffset(first - 1, wanted.epoch)
            yield from self._table.read(
                replace(wanted, start=start, to_seq=end, run=None, archived_range=archived_range)
            )

    def _archived_range(self, wanted: SeqRange, up_to: int) -> ArchivedRange:
        """The table as it is now: what was trimmed was committed before."""
        if self._archived is None:
            self._archived = Archived(self.options)
        archived_range = self._archived.archived_range(wanted.topic, wanted.epoch)
        if archived_range.reached < up_to:
            self._archived.look({})
            archived_range = self._archived.archived_range(wanted.topic, wanted.epoch)
        return archived_range


def existing(options: SourceOptions) -> Archived:
    """For a read that is about to be planned."""
    found = Archived(options)
    try:
        found.look({})
    except PipelineFailed as failure:
        raise OptionError(f'option "archive" is "{options.archive}", but {failure}') from None
    return found

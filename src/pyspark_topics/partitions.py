"""Splitting a read into tasks: few large ones, each a list of seq ranges."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyspark.sql.datasource import InputPartition

from pyspark_topics.offsets import NO_EPOCH, ORIGIN, Offsets, Position, TopicView
from pyspark_topics.options import ReadOptions

# A task costs tens of milliseconds: below this many records another one does not pay.
SMALLEST_TASK = 50_000
# Above this a task that fails repeats too much, and its neighbours wait for it.
LARGEST_TASK = 1_000_000


@dataclass(frozen=True)
class Pin:
    """A snapshot whose files the server keeps for so long, counted from when it was last asked to."""

    topic: str
    snapshot: str
    lease_s: float


@dataclass(frozen=True)
class SealedRun:
    """Where a run of records lies on disk, and what tells it from another file under the same path."""

    path: str
    topic_id: int
    base: int
    count: int
    first_ts: int
    last_ts: int
    # Indexes of records, as 32-bit numbers, whose deletion the file may not show yet.
    dead: bytes
    pin: Pin


@dataclass(frozen=True)
class Shelf:
    """What the table of an archive has of one life of a topic."""

    # Up to here.
    reached: int
    # Smallest and largest seq of files, and their names.
    files: tuple[tuple[int, int, str], ...]
    # What was lost before it was archived: from, to, and why.
    gaps: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True)
class SeqRange:
    """Seqs above `start.seq` up to `to_seq`, in the life of the topic that has this `epoch`.

    A start in an earlier life means that the reader has to be told before it gets the new records.
    """

    topic: str
    start: Position
    to_seq: int
    epoch: int
    # How many records to expect, for sharing out work; nothing else depends on it.
    weight: int = 0
    # The run all of it lies in, for readers that see the file.
    run: SealedRun | None = None
    # Where all of it comes from the table of an archive.
    shelf: Shelf | None = None
    # The server that has the topic, where there are several.
    server: str = ""
    # Where the earlier life that `start` is in ended, as far as that is known.
    unread_to: int = ORIGIN

    @property
    def unread(self) -> tuple[int, int] | None:
        """From where to where the reader missed the life of the topic that it was in, if that is over."""
        first = self.start.seq + 1
        is_over = not self.start.leads_to(Position(self.to_seq, self.epoch))
        return (first, self.unread_to) if is_over and first <= self.unread_to else None


@dataclass
class TaskPartition(InputPartition):
    ranges: list[SeqRange] = field(default_factory=list)

    @property
    def pins(self) -> set[Pin]:
        return {one.run.pin for one in self.ranges if one.run is not None}

    @property
    def homes(self) -> dict[str, str]:
        return {one.topic: one.server for one in self.ranges if one.server}


def ranges_between(
    start: Offsets,
    end: Offsets,
    views: Mapping[str, TopicView],
    heads: Mapping[str, int] = MappingProxyType({}),
) -> list[SeqRange]:
    """What lies between two offsets. Topics that stand still have no range."""
    found = []
    for topic, at in sorted(end.items()):
        begin = start.get(topic, Position(ORIGIN, at.epoch))
        if begin.epoch == NO_EPOCH:  # it did not exist then: nothing was missed
            begin = Position(ORIGIN, at.epoch)
        if begin == at:
            continue
        view = views.get(topic) or TopicView(topic, at.epoch, at.seq, ORIGIN + 1)
        weight, unread_to = view.records_between(begin, at), heads.get(topic, ORIGIN)
        found.append(SeqRange(topic, begin, at.seq, at.epoch, weight, unread_to=unread_to))
    return found


def split(ranges: Iterable[SeqRange], options: ReadOptions) -> list[TaskPartition]:
    ranges = list(ranges)
    total = sum(one.weight for one in ranges)
    size = _task_size(total, options)
    tasks: list[TaskPartition] = []
    room = 0
    for one in (piece for whole in ranges for piece in _pieces(whole, size)):
        if not tasks or one.weight > room:
            tasks.append(TaskPartition([]))
            room = size
        tasks[-1].ranges.append(one)
        room -= one.weight
    return tasks


def _task_size(total: int, options: ReadOptions) -> int:
    """Records per task, as few tasks as the options and the cores allow."""
    if options.min_partitions is not None:
        # Rounded down: packed tighter, the tasks could come out fewer than asked for.
        size = total // options.min_partitions
    else:
        size = max(-(-total // (os.cpu_count() or 1)), SMALLEST_TASK)
    return max(min(size, options.max_records_per_partition or LARGEST_TASK), 1)


def _pieces(whole: SeqRange, size: int) -> Iterable[SeqRange]:
    """Equal pieces of at most `size` records. The first one also passes what is dead at the front."""
    count = max(-(-whole.weight // size), 1)
    first = whole.to_seq - whole.weight
    start, reached = whole.start, first
    for index in range(1, count + 1):
        end = first + whole.weight * index // count
        yield replace(whole, start=start, to_seq=end, weight=end - reached)
        start, reached = Position(end, whole.epoch), end

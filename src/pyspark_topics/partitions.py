"""From offsets to the tasks of a read: few large tasks, each with a list of seq ranges.

    driver:  offsets → ranges → cut along sealed files (one manifest for each topic) → tasks

A manifest is one snapshot of a topic: its lines, its epoch, its files, and the deletions that the files do
not show yet. The server keeps the files while the lease of the snapshot runs.
"""

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_topics.offsets import NO_EPOCH, ORIGIN, Offsets, StreamOffset, TopicView
from pyspark_topics.options import SourceOptions
from pyspark_topics.servers import TopicsClient
from topics.client import Refused, TopicsError

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
    """The path of a run of records on disk, and what distinguishes it from another file at that path."""

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
class ArchivedRange:
    """The files and gaps of one epoch of a topic in the table of an archive."""

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
    start: StreamOffset
    to_seq: int
    epoch: int
    # How many records to expect, for sharing out work; nothing else depends on it.
    weight: int = 0
    # The run all of it lies in, for readers that see the file.
    run: SealedRun | None = None
    # Where all of it comes from the table of an archive.
    archived_range: ArchivedRange | None = None
    # The server that has the topic, where there are several.
    server: str = ""
    # Where the earlier life that `start` is in ended, as far as that is known.
    unread_to: int = ORIGIN

    @property
    def unread(self) -> tuple[int, int] | None:
        """From where to where the reader missed the life of the topic that it was in, if that is over."""
        first = self.start.seq + 1
        is_over = not self.start.leads_to(StreamOffset(self.to_seq, self.epoch))
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
    """Return the seq ranges between two offsets; a topic that did not move has none."""
    found = []
    for topic, at in sorted(end.items()):
        if at.epoch == NO_EPOCH:  # the plan was made before the topic was created
            continue
        begin = start.get(topic, StreamOffset(ORIGIN, at.epoch))
        if begin.epoch == NO_EPOCH:  # it did not exist then: nothing was missed
            begin = StreamOffset(ORIGIN, at.epoch)
        if begin == at:
            continue
        view = views.get(topic) or TopicView(topic, at.epoch, at.seq, ORIGIN + 1)
        weight, unread_to = view.records_between(begin, at), heads.get(topic, ORIGIN)
        found.append(SeqRange(topic, begin, at.seq, at.epoch, weight, unread_to=unread_to))
    return found


def split(ranges: Iterable[SeqRange], options: SourceOptions) -> list[TaskPartition]:
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


def _task_size(total: int, options: SourceOptions) -> int:
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
        start, reached = StreamOffset(end, whole.epoch), end


@dataclass(frozen=True)
class ScanFilter:
    """The records that the reader chose to leave out. They are not reported as loss."""

    nodes: tuple[str, ...] = ()
    tag: Any = None
    since_ts: int | None = None
    until_ts: int | None = None

    def request(self) -> dict[str, Any]:
        asked = {
            "node": list(self.nodes) or None,
            "tag": self.tag,
            "since_ts": self.since_ts,
            "until_ts": self.until_ts,
        }
        return {key: value for key, value in asked.items() if value is not None}


# Below this a manifest costs more than it saves.
SMALLEST_READ = 20_000


@dataclass
class SealedFiles:
    """Sealed files as the driver sees them. The server keeps the files of a manifest until its lease ends."""

    client: TopicsClient

    def __post_init__(self) -> None:
        self._pinned: list[tuple[str, str]] = []

    def along(self, ranges: list[SeqRange]) -> list[SeqRange]:
        """Cut ranges so that each sealed part names its file."""
        return [piece for one in ranges for piece in self._cut(one)]

    def _cut(self, wanted: SeqRange) -> list[SeqRange]:
        if wanted.weight < SMALLEST_READ:
            return [wanted]
        try:
            manifest = self.client.segments(wanted.topic)
        except Refused:
            # A key for some topics only may not see files, which hold others, too. Or the topic is gone.
            return [wanted]
        self._pinned.append((wanted.topic, manifest["snapshot"]))
        return list(_cut(wanted, manifest)) if manifest["epoch"] == wanted.epoch else [wanted]

    def release(self) -> None:
        """All reads that were planned are over. A lease that is not given back runs out by itself."""
        pinned, self._pinned = self._pinned, []
        with suppress(TopicsError):
            for topic, snapshot in pinned:
                self.client.release_segments(topic, snapshot)


def _cut(wanted: SeqRange, manifest: dict[str, Any]) -> Iterator[SeqRange]:
    at = wanted.start
    live_from = manifest["earliest_seq"]
    if not at.leads_to(StreamOffset(wanted.to_seq, wanted.epoch)) or at.seq + 1 < manifest["loss_line"]:
        # What is announced to this cursor before its first record; no record lies there.
        end = min(live_from - 1, wanted.to_seq)
        yield replace(wanted, to_seq=end, weight=0)
        at = StreamOffset(end, wanted.epoch)
    at = StreamOffset(max(at.seq, min(live_from - 1, wanted.to_seq)), wanted.epoch)
    for run in manifest["runs"]:
        first, last = run["base"], min(run["base"] + run["count"] - 1, wanted.to_seq)
        if last <= at.seq:
            continue
        if first > wanted.to_seq:
            break
        if first > at.seq + 1:  # holes, and whatever else is not in a file
            yield _piece(wanted, at.seq, first - 1, None)
            at = StreamOffset(first - 1, wanted.epoch)
        yield _piece(wanted, at.seq, last, _sealed(manifest, run))
        at = StreamOffset(last, wanted.epoch)
    if at.seq < wanted.to_seq:
        yield _piece(wanted, at.seq, wanted.to_seq, None)


def _piece(wanted: SeqRange, from_seq: int, to_seq: int, run: SealedRun | None) -> SeqRange:
    start = StreamOffset(from_seq, wanted.epoch)
    return SeqRange(wanted.topic, start, to_seq, wanted.epoch, to_seq - from_seq, run)


def _sealed(manifest: dict[str, Any], run: dict[str, Any]) -> SealedRun:
    return SealedRun(
        os.path.join(manifest["data_dir"], run["path"]),
        run["topic_id"],
        run["base"],
        run["count"],
        run["first_ts"],
        run["last_ts"],
        base64.b64decode(run["dead"]),
        Pin(manifest["topic"], manifest["snapshot"], (manifest["expires_ms"] - manifest["now"]) / 1000),
    )


@contextmanager
def planned(
    client: TopicsClient, ranges: list[SeqRange], options: SourceOptions
) -> Iterator[list[TaskPartition]]:
    """Tasks that are done by the end of the block, and their files kept until then."""
    files = SealedFiles(client)
    try:
        yield plan(files, ranges, options)
    finally:
        files.release()


def plan(files: SealedFiles, ranges: list[SeqRange], options: SourceOptions) -> list[TaskPartition]:
    home = files.client.home
    from_archive = [one for one in ranges if one.archived_range is not None]
    logged = [one for one in ranges if one.archived_range is None]
    tasks = split([*from_archive, *(files.along(logged) if options.direct else logged)], options)
    if len(options.server.urls) > 1:
        for task in tasks:
            task.ranges = [replace(one, server=home(one.topic)) for one in task.ranges]
    return tasks

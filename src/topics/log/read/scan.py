"""Bulk reads: a stretch of the log as Arrow record batches.

The questions asked of each seq, and their order, are those of every other read. What differs is that holes
do not end a scan: it announces each of them in its place and goes on behind it. A scan is taken in steps of
bounded work, each under one consistent view; what retention takes between two steps the next one announces.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from topics.core import FIELDS, topic_not_found
from topics.log.engine import Engine
from topics.log.read.filter import Choice, TagMatch
from topics.log.read.tombstone import Tombstone, locate
from topics.log.remove.removal import surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import Columns
from topics.storage.arrow_columns import record_batch, schema

COLUMN_NAMES = ("seq", "ts", *(field.name for field in reversed(FIELDS)), "data", "meta")
# What one step examines at most: a few milliseconds of work, and batches large enough to be worth their head.
STEP_RECORDS = 32_768
STEP_BYTES = 8 * 1024 * 1024
# Runs that are smaller than this share a batch, which costs a copy; with so many records a batch is full.
FULL_RECORDS = 8_192


@dataclass(slots=True, kw_only=True)
class ScanRequest:
    """`from_seq` is exclusive, `to_seq` inclusive; `since_ts` inclusive, `until_ts` exclusive."""

    from_seq: int = 0
    to_seq: int | None = None
    columns: tuple[str, ...] = COLUMN_NAMES
    nodes: frozenset[str] | None = None
    match: TagMatch | None = None
    since_ts: int | None = None
    until_ts: int | None = None
    max_records: int | None = None
    epoch: int | None = None


@dataclass(slots=True)
class Piece:
    """Records, and the gap that lies before them."""

    batch: pa.RecordBatch
    tombstone: Tombstone | None


@dataclass(slots=True)
class _ScanWalk:
    """What one step has found so far; it becomes the scan's when the step has succeeded."""

    position: int
    scanned: int = 0
    count: int = 0
    bytes: int = 0
    parts: list[pa.RecordBatch] = field(default_factory=list)


class Scan:
    """One bulk read. It ends at the head that was there when it began, or earlier if so asked."""

    def __init__(self, engine: Engine, topic: Topic, request: ScanRequest) -> None:
        engine.refresh(topic)
        self.topic = topic
        self.now = engine.now()
        self.head_seq, self.earliest_seq, self.loss_line = topic.head, topic.floor, topic.loss_line
        self.schema = schema(request.columns)
        self.position = request.from_seq
        self.scanned = 0
        self.finished = False
        self._engine = engine
        self._request = request
        self._nodes = request.nodes if topic.config.dedupe_node else None
        self._choice = Choice(request.match, request.since_ts, request.until_ts)
        self._epoch = request.epoch
        self._stop = topic.head if request.to_seq is None else min(request.to_seq, topic.head)
        self._room = request.max_records

    @property
    def caught_up(self) -> bool:
        return self.position == self.head_seq

    def step(self) -> Piece | None:
        """The next records; None when there are none to tell of in this step."""
        if self.topic.dropped:
            raise topic_not_found(self.topic.name)
        self._engine.refresh(self.topic)
        return surviving_damage(lambda _: self._step())(self.topic)

    def _step(self) -> Piece | None:
        position, gap, stop_before = locate(self.topic, self.position, self._epoch)
        moved_back = gap is not None and gap.reason == "recreated"
        if not moved_back:
            if self.position >= self._stop:
                self.finished = True
                return None
            position = min(position, self._stop)
            gap = None if gap is None else gap.within(self._stop)
        stop_before = min(stop_before, self._stop + 1)
        walk = _ScanWalk(position)
        if position < stop_before - 1:
            self._walk(walk, stop_before)
        self._epoch = None
        self.position = walk.position
        self.scanned += walk.scanned
        if self._room is not None:
            self._room -= walk.count
        self.finished = self.position >= self._stop or self._room == 0
        if not walk.count and gap is None:
            return None
        return Piece(self._joined(walk.parts), gap)

    def _walk(self, walk: _ScanWalk, stop_before: int) -> None:
        topic = self.topic
        for run, start, stop in topic.runs.stretches(max(walk.position + 1, topic.floor), stop_before):
            examined = self._take(walk, run, start, min(stop, start + STEP_RECORDS - walk.scanned))
            walk.scanned += examined - start
            walk.position = run.base + examined - 1
            if examined < stop or walk.scanned >= STEP_RECORDS or walk.count >= FULL_RECORDS:
                break
            if walk.count == self._room:
                break
        else:
            # Nothing readable is left below the bound: what remains was skipped in silence.
            walk.position = stop_before - 1

    def _take(self, walk: _ScanWalk, run: Run, start: int, stop: int) -> int:
        """Add what is wanted of a stretch of one run; returns the index up to which it was examined."""
        if not run.live_count or self._choice.is_outside(run):
            return stop
        columns = self.topic.store.columns(run)
        stop = _fitting(columns, start, stop, STEP_BYTES - walk.bytes, is_first=not walk.scanned)
        wanted = self._choice.survivors(run, columns, start, stop, self._nodes)
        if self._room is not None and len(wanted) >= self._room - walk.count:
            wanted = wanted[: self._room - walk.count]
            stop = int(wanted[-1]) + 1
        if len(wanted):
            walk.parts.append(record_batch(columns, wanted, self._request.columns))
            walk.count += len(wanted)
        walk.bytes += columns.start_of(stop) - columns.start_of(start)
        return stop

    def _joined(self, parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return pa.RecordBatch.from_arrays(
                [pa.array([], kind) for kind in self.schema.types], schema=self.schema
            )
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _fitting(columns: Columns, start: int, stop: int, budget: int, *, is_first: bool) -> int:
    """How far a stretch goes before its rows exceed the budget; the first record always fits."""
    most = columns.start_of(start) + max(budget, 0)
    fitting = int(np.searchsorted(columns.ends[start:stop], most, side="right"))
    return start + max(fitting, 1 if is_first else 0)

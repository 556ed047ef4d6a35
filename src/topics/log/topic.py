"""The state of one topic instance and the few moves everything else is made of.

Two heads: `assigned` is the last seq given out, `head` the last one committed and so visible. Two floors:
`floor` is the lowest live seq, `loss_line` one past the highest seq the server itself took from readers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from topics.log import ledger
from topics.log.batch import Batch
from topics.log.clock_mark import ClockMark
from topics.log.ledger import Ledger
from topics.log.run import HotColumns, Run
from topics.log.segments import SegmentStore
from topics.log.tags import TagIndex
from topics.log.totals import Totals
from topics.storage.columns import U32, Columns
from topics.storage.segment import SegmentDamaged
from topics.values.config import TopicConfig


@dataclass(slots=True)
class Hole:
    """Seqs that were promised and are gone. `interior` ones interrupt a read on their own."""

    first: int
    last: int
    kind: int
    interior: bool


class Topic:
    __slots__ = (
        "assigned",
        "bases",
        "cap_hi",
        "clock_mark",
        "committed",
        "config",
        "delete_below",
        "dropped",
        "extension",
        "floor",
        "floor_ts",
        "head",
        "holes",
        "id",
        "idempotency",
        "last_read_ts",
        "last_ts",
        "last_write_ts",
        "ledger",
        "listeners",
        "live_bytes",
        "live_count",
        "lost_hi",
        "mixed",
        "name",
        "name_json",
        "pending_bytes",
        "pending_count",
        "pending_sync",
        "reserve_asked",
        "reserved",
        "reserving",
        "runs",
        "seq_base",
        "store",
        "tags",
        "totals",
        "trim_hi",
        "ttl_hi",
    )

    def __init__(
        self,
        topic_id: int,
        name: str,
        config: TopicConfig,
        seq_base: int,
        store: SegmentStore,
        totals: Totals,
        clock_mark: ClockMark,
    ) -> None:
        self.id = topic_id
        self.name = name
        self.name_json = name.encode()
        self.config = config
        self.seq_base = seq_base
        self.store = store
        self.totals = totals
        self.clock_mark = clock_mark
        self.note_change()
        self.head = self.assigned = seq_base - 1
        self.floor = seq_base
        # Timestamp of the record at the floor: lets an unexpired topic answer in one comparison.
        self.floor_ts = 0
        self.cap_hi = self.ttl_hi = self.trim_hi = self.lost_hi = 0
        self.delete_below = 0
        self.last_ts = 0
        self.runs: list[Run] = []
        self.bases: list[int] = []
        self.live_count = self.live_bytes = 0
        self.pending_count = self.pending_bytes = 0
        self.pending_sync = 0
        self.reserved = seq_base - 1
        self.reserving = 0
        # The end of the reservation that is on its way to disk; never below `reserved`.
        self.reserve_asked = seq_base - 1
        self.holes: list[Hole] = []
        self.ledger = Ledger()
        self.tags = TagIndex()
        self.idempotency: Any = None  # an IdempotencyMemory, once a keyed write came
        self.listeners: list[Callable[[], None]] = []
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.committed = False
        self.dropped = False
        # Ephemeral records lie beside kept ones: caps then count what replay will not find.
        self.mixed = False
        # State of what is layered on a topic (queues keep their leases here).
        self.extension: Any = None

    def note_change(self) -> None:
        """Something that belongs into a snapshot is not any more what it was."""
        self.store.changed.add(self.id)

    # --- watermarks -------------------------------------------------------------------------------------

    @property
    def loss_line(self) -> int:
        line = max(self.cap_hi, self.ttl_hi, self.trim_hi, self.lost_hi) + 1
        return min(max(line, self.seq_base), self.head + 1)

    def first_live(self, seq: int) -> int:
        """The lowest live visible seq at or above `seq`, or head + 1."""
        index = max(bisect_right(self.bases, seq) - 1, 0)
        while index < len(self.runs):
            run = self.runs[index]
            if run.live_count and run.last >= seq:
                self.load_marks(run)
                found = run.first_live_index(max(seq - run.base, 0))
                if found < run.count:
                    return min(run.base + found, self.head + 1)
            index += 1
        return self.head + 1

    def load_marks(self, run: Run) -> None:
        """Bring the run's deletion marks into memory, if it has any."""
        if run.dead_count and run.dead is None:
            self.store.columns(run)

    # --- appending --------------------------------------------------------------------------------------

    def open_run(self, max_events: int, max_bytes: int, position: int, *, ephemeral: bool) -> Run:
        """The run that takes the next records; a full or sealed one is left behind for good.

        `ephemeral`: no frame has them. The config cannot tell: a change of it may be on its way, and in
        recovery it comes before the frames of writes that were submitted behind it.
        """
        if self.runs:
            run = self.runs[-1]
            hot = run.hot
            if (
                hot is not None
                and not run.frozen
                and run.base + run.count == self.assigned + 1
                and run.count < max_events
                and len(hot.rows) < max_bytes
                and run.ephemeral is ephemeral
            ):
                if position < run.start_position:
                    self.store.unsealed.lower(run, position)
                return run
            if run.ephemeral is not ephemeral:
                self.mixed = True
            self.store.unsealed.complete(run)
        run = Run(self.id, self.assigned + 1, start_position=position, ephemeral=ephemeral)
        self.runs.append(run)
        self.bases.append(run.base)
        if not ephemeral:
            self.store.unsealed.add(self, run)
        return run

    def insert_run(self, run: Run) -> None:
        index = bisect_right(self.bases, run.base)
        self.runs.insert(index, run)
        self.bases.insert(index, run.base)
        if run.hot is not None:
            self.store.unsealed.add(self, run)

    def stage(self, run: Run, batch: Batch, rows: bytes, ts: int, hops: bytes | None = None) -> None:
        """Put rendered records behind the visible head: assigned, counted as pending, seen by nobody."""
        first = self.assigned + 1
        added = run.extend(batch, rows, ts, hops)
        if not run.ephemeral:
            self.store.unsealed.grew(run, added)
        self.assigned += batch.count
        self.pending_count += batch.count
        self.pending_bytes += batch.size
        self.totals.pending_bytes += batch.size
        self.last_ts = ts
        if batch.tags is not None:
            self.tags.extend(run.base, batch.tags, first)

    def publish(self, count: int, size: int, ts: int) -> None:
        """Staged records become visible, in the order in which they were assigned."""
        self.pending_count -= count
        self.pending_bytes -= size
        self.totals.pending_bytes -= size
        if not self.live_count:
            self.floor = self.head + 1
            self.floor_ts = ts
        self.head += count
        self.add_live(count, size)
        self.last_write_ts = ts

    def add_live(self, count: int, size: int) -> None:
        self.live_count += count
        self.live_bytes += size
        self.totals.records += count
        self.totals.bytes += size
        self.store.changed.add(self.id)

    def unstage(self) -> None:
        """Forget everything above the visible head: its commit failed."""
        unsealed = self.store.unsealed
        while self.runs and self.runs[-1].base > self.head:
            unsealed.discard(self.runs.pop())
            self.bases.pop()
        if self.runs and self.runs[-1].last > self.head:
            run = self.runs[-1]
            assert run.hot is not None
            keep = self.head - run.base + 1
            sizes = run.hot.view(run.base).sizes(keep)
            run.live_bytes -= int(sizes.sum())
            del sizes
            run.live_count -= run.count - keep
            run.count = keep
            size = run.hot.truncate(keep)
            if not run.ephemeral:
                unsealed.shrank(size)
            if run.dead is not None:
                del run.dead[keep:]
        self.tags.forget_above(self.head)
        self.assigned = self.head
        self.totals.pending_bytes -= self.pending_bytes
        self.pending_count = self.pending_bytes = 0

    # --- removing ---------------------------------------------------------------------------------------

    def drop_front(self, upto: int, kind: int) -> tuple[int, int]:
        """Remove every live record up to `upto`; returns how many there were and the last of them."""
        upto = min(upto, self.head)
        removed = last_live = 0
        while self.runs and self.runs[0].base <= upto:
            run = self.runs[0]
            start = max(self.floor - run.base, 0)
            stop = min(run.count, upto - run.base + 1)
            if stop > start:
                try:
                    if run.live_count:
                        self.load_marks(run)
                    count, size = self._take(run, start, stop)
                except SegmentDamaged:
                    self.lose_runs([run])
                    continue
                if count:
                    last_live = run.base + _last_live(run, start, stop)
                self._account(run, start, stop, kind)
                self.add_live(-count, -size)
                self.totals.removed(kind, count, size)
                removed += count
                self.floor = run.base + stop
            if stop < run.count:
                break
            self._pop_run()
        self.settle_floor(max(self.floor, upto + 1))
        return removed, last_live

    def _take(self, run: Run, start: int, stop: int) -> tuple[int, int]:
        """Strike a stretch from the run's counters; returns live records and live bytes in it."""
        if stop == run.count or not run.live_count:
            count, size = run.live_count, run.live_bytes
            run.live_count = run.live_bytes = 0
            return count, size
        if run.hot is not None and run.dead is None and stop - start == 1:
            size = run.hot.data_lens[start]
            if run.hot.meta_lens is not None:
                size += run.hot.meta_lens[start]
            count = 1
        else:
            columns = self.store.columns(run)
            count = run.live_between(start, stop)
            size = int(run.live_sizes(columns, start, stop).sum())
        run.live_count -= count
        run.live_bytes -= size
        return count, size

    def _account(self, run: Run, start: int, stop: int, kind: int) -> None:
        """Write the stretch into the ledger, telling what was deleted before from what goes now."""
        base = run.base
        emptied_by_deletes = run.hot is None and run.sealed is None
        if run.dead is None or kind == ledger.DELETED:
            self.ledger.add(base + start, base + stop - 1, ledger.DELETED if emptied_by_deletes else kind)
            return
        marks = np.frombuffer(run.dead, np.uint8)[start:stop]
        edges = np.flatnonzero(np.diff(marks)) + 1
        bounds = [0, *edges.tolist(), stop - start]
        for left, right in pairwise(bounds):
            part = ledger.DELETED if marks[left] else kind
            self.ledger.add(base + start + left, base + start + right - 1, part)
        del marks

    def _pop_run(self) -> None:
        run = self.runs.pop(0)
        self.bases.pop(0)
        self.forget_tags(run)
        self.store.release(run)

    def forget_tags(self, run: Run) -> None:
        """The run leaves memory: from now on its segment answers for its tags, or nobody has to."""
        if run.hot is not None and run.hot.tag_codes is not None:
            self.tags.forget_run(run.base)

    def settle_floor(self, at_least: int) -> None:
        """Let the floor rise to the first live seq; what it passes on the way was deleted before."""
        surviving_damage(self, lambda: self._settle_floor(at_least))

    def _settle_floor(self, at_least: int) -> None:
        self.note_change()
        floor = self.first_live(max(at_least, self.floor)) if self.live_count else self.head + 1
        position = self.floor
        while self.runs and self.runs[0].base < floor:
            run = self.runs[0]
            start = max(position - run.base, 0)
            stop = min(run.count, floor - run.base)
            if stop > start:
                self.ledger.add(run.base + start, run.base + stop - 1, ledger.DELETED)
            if stop < run.count:
                break
            self._pop_run()
        self.floor = max(floor, self.floor)
        self.floor_ts = self._ts_at_floor()

    def _ts_at_floor(self) -> int:
        if not self.live_count:
            return 0
        run = self.runs[0]
        if run.hot is not None:
            return run.hot.ts_at(self.floor - run.base)
        return int(self.store.columns(run).ts[self.floor - run.base])

    def mark_dead(self, run: Run, indexes: np.ndarray) -> int:
        """Delete records of one run by index; returns how many of them were live until now."""
        # In memory the two length columns are all it takes; a whole view would cost more than the deletion.
        columns: HotColumns | Columns = self.store.columns(run) if run.hot is None else run.hot
        if run.dead is None:
            run.dead = bytearray(run.count)
        marks = np.frombuffer(run.dead, np.uint8)
        fresh = indexes[marks[indexes] == 0]
        count = len(fresh)
        if count:
            marks[fresh] = 1
            size = _sum_at(columns.data_lens, fresh) + _sum_at(columns.meta_lens, fresh)
            run.dead_count += count
            run.live_count -= count
            run.live_bytes -= size
            self.add_live(-count, -size)
            self.totals.removed(ledger.DELETED, count, size)
            if run.sealed is not None:
                run.sealed.unflipped.extend(array("I", fresh.astype(np.uint32).tobytes()))
                self.store.unflipped.add(run)
        del marks, columns
        return count

    def strike(self, run: Run, indexes: U32, size: int) -> int:
        """Delete records of a run that are known to be live, with their size; returns how many."""
        count = len(indexes)
        if not count:
            return 0
        run.dead_count += count
        run.live_count -= count
        run.live_bytes -= size
        self.add_live(-count, -size)
        self.totals.removed(ledger.DELETED, count, size)
        if run.hot is not None:
            if run.dead is None:
                run.dead = bytearray(run.count)
            np.frombuffer(run.dead, np.uint8)[indexes] = 1
        if run.sealed is not None:
            run.sealed.unflipped.frombytes(indexes.astype(np.uint32, copy=False).tobytes())
            self.store.unflipped.add(run)
            self.store.unload(run)
        return count

    # --- holes ------------------------------------------------------------------------------------------

    def add_hole(self, first: int, last: int, kind: int, *, interior: bool | None = None) -> None:
        """Seqs at the top that will never be readable: loss at the front, or a gap inside the log."""
        if last < first:
            return
        self.head = max(self.head, last)
        self.assigned = max(self.assigned, last)
        self.note_hole(first, last, kind, interior=self.live_count > 0 if interior is None else interior)
        if not self.live_count:
            self.floor = self.head + 1

    def note_hole(self, first: int, last: int, kind: int, *, interior: bool) -> None:
        self.note_change()
        if not interior:
            self._raise_line(kind, last)
        if self.holes:
            top = self.holes[-1]
            if top.last + 1 == first and top.kind == kind and top.interior == interior:
                top.last = last
                return
        self.holes.append(Hole(first, last, kind, interior))
        self.holes.sort(key=lambda hole: hole.first)

    def _raise_line(self, kind: int, seq: int) -> None:
        if kind == ledger.TRIM:
            self.trim_hi = max(self.trim_hi, seq)
        else:
            self.lost_hi = max(self.lost_hi, seq)

    def absorb_holes(self) -> None:
        """A cap or TTL loss that passed a hole makes it part of the front gap."""
        passed = max(self.cap_hi, self.ttl_hi)
        for hole in self.holes:
            if hole.interior and hole.last <= passed:
                hole.interior = False
                self._raise_line(hole.kind, hole.last)

    def hole_after(self, seq: int) -> Hole | None:
        """The first interior hole that reaches above `seq`."""
        for hole in self.holes:
            if hole.interior and hole.last > seq:
                return hole
        return None

    def lose_runs(self, damaged: list[Run]) -> None:
        """Sealed runs turned out to be damaged: what they held is announced as lost."""
        for run in damaged:
            index = self.runs.index(run)
            at_front = not any(below.live_count for below in self.runs[:index])
            self.add_live(-run.live_count, -run.live_bytes)
            self.totals.removed(ledger.LOST, run.live_count, run.live_bytes)
            self.store.release(run)
            del self.runs[index], self.bases[index]
            self.note_hole(max(run.base, self.floor), run.last, ledger.LOST, interior=not at_front)
            self.totals.damage += 1
        self.settle_floor(self.floor)

    # --- wake-ups ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def _sum_at(column: U32 | array[int] | None, indexes: np.ndarray) -> int:
    return 0 if column is None else int(np.asarray(column, np.uint32)[indexes].sum(dtype=np.int64))


def _last_live(run: Run, start: int, stop: int) -> int:
    return stop - 1 if run.dead is None else run.dead.rfind(0, start, stop)


def surviving_damage(topic: Topic, action: Callable[[], Any]) -> Any:
    """Run `action`; when it meets a damaged segment, turn that run into a hole and try again.

    A file that could not be read a moment ago and can be read now costs nobody a record.
    """
    was_passing = False
    while True:
        try:
            return action()
        except SegmentDamaged:
            damaged = [run for run in topic.runs if not _readable(topic, run)]
            if not damaged and was_passing:
                raise
            was_passing = not damaged
            if damaged:
                topic.lose_runs(damaged)


def _readable(topic: Topic, run: Run) -> bool:
    if run.live_count == 0:
        return True
    try:
        topic.store.columns(run)
    except (SegmentDamaged, OSError):
        return False
    return True

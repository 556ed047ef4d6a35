"""The state of one topic instance and the few moves everything else is made of.

Two heads: `assigned` is the last seq given out, `head` the last one committed and so visible. Two floors:
`floor` is the lowest live seq, `loss_line` one past the highest seq the server itself took from readers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from topics.log.clock_mark import ClockMark
from topics.log.holes import Hole
from topics.log.remove.ledger import Ledger
from topics.log.remove.tags import TagIndex
from topics.log.run import Run
from topics.log.seal.segment_store import SegmentStore
from topics.log.totals import Totals
from topics.log.write.batch import Batch
from topics.storage.columns import I64
from topics.values.config import TopicConfig

Seqs = TypeVar("Seqs", Sequence[int], I64)


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
        "ttl_unnoted",
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
        # Age has taken ephemeral records, and the journal does not say so: replay will not find them.
        self.ttl_unnoted = False
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
        for run, start, stop in self.stretches(seq, self.head + 1):
            if run.live_count:
                self.load_marks(run)
                found = run.first_live_index(start)
                if found < stop:
                    return run.base + found
        return self.head + 1

    # --- runs -------------------------------------------------------------------------------------------

    def stretches(self, first: int, stop_before: int) -> Iterator[tuple[Run, int, int]]:
        """The walk over runs: each that has seqs from `first` up to but not including `stop_before`.

        With the index of the first such record in it, and one past the last; never an empty stretch.
        """
        for index in range(max(bisect_right(self.bases, first) - 1, 0), len(self.runs)):
            run = self.runs[index]
            base = run.base
            if base >= stop_before:
                return
            start, stop = max(first - base, 0), min(run.count, stop_before - base)
            if start < stop:
                yield run, start, stop

    def by_run(self, seqs: Seqs) -> Iterator[tuple[Run, Seqs]]:
        """Ascending seqs, together with the run that holds them.

        Those that no run holds, or one in which no record is live, are left out. Only runs that hold some of
        the seqs are looked at, however many there are.
        """
        at = 0
        while at < len(seqs):
            index = bisect_right(self.bases, int(seqs[at])) - 1
            if index < 0 or seqs[at] > self.runs[index].last:
                if index + 1 == len(self.runs):
                    return
                at = bisect_left(seqs, self.bases[index + 1], at)
                continue
            run = self.runs[index]
            begin, at = at, bisect_right(seqs, run.last, at)
            if run.live_count:
                yield run, seqs[begin:at]

    def run_at(self, seq: int) -> Run | None:
        index = bisect_right(self.bases, seq) - 1
        return self.runs[index] if index >= 0 and self.runs[index].last >= seq else None

    def load_marks(self, run: Run) -> None:
        """Bring the run's deletion marks into memory, if it has any."""
        if run.dead_count and run.dead is None:
            self.store.columns(run)

    def forget_tags(self, run: Run) -> None:
        """The run leaves memory: from now on its segment answers for its tags, or nobody has to."""
        if run.hot is not None and run.hot.tag_codes is not None:
            self.tags.forget_run(run.base)

    # --- appending --------------------------------------------------------------------------------------

    def open_run(self, max_events: int, max_bytes: int, position: int, *, ephemeral: bool) -> Run:
        """The run that takes the next records; a full or sealed one is left behind for good.

        `ephemeral`: no frame has them. The config cannot tell: a change of it may be on its way, and in
        recovery it comes before the frames of writes that were submitted behind it.
        """
        room = 0
        if self.runs:
            run = self.runs[-1]
            hot = run.hot
            if (
                hot is not None
                and not run.frozen
                and run.base + run.count == self.assigned + 1
                and run.count < max_events
                and hot.size < max_bytes
                and run.ephemeral is ephemeral
            ):
                if position < run.start_position:
                    self.store.unsealed.lower(run, position)
                return run
            if run.ephemeral is not ephemeral:
                self.mixed = True
            self.store.unsealed.complete(run)
            if hot is not None and run.count >= max_events:
                room = hot.room_for_next
        run = Run(self.id, self.assigned + 1, start_position=position, ephemeral=ephemeral, room=room)
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
        try:
            if batch.tags is not None:
                self.tags.extend(run.base, batch.tags, first)
            added = run.extend(batch, rows, ts, hops)
        except MemoryError:
            self._take_back(run)
            raise
        if not run.ephemeral:
            self.store.unsealed.grew(run, added)
        self.assigned += batch.count
        self.pending_count += batch.count
        self.pending_bytes += batch.size
        self.totals.pending_bytes += batch.size
        self.last_ts = ts

    def _take_back(self, run: Run) -> None:
        """There was no memory for records that should have gone into the run: it is as it was before."""
        if run.count:
            assert run.hot is not None
            run.hot.truncate(run.count)
        else:
            # One without records could not be sealed.
            self.store.unsealed.discard(run)
            self.runs.pop()
            self.bases.pop()
        self.tags.forget_above(self.assigned)

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
            run.live_bytes -= run.hot.size_between(keep, run.count)
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

    # --- wake-ups ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        for listener in tuple(self.listeners):
            listener()

"""One topic instance: its runs, and the moves that everything else is made of.

    assign (seqs given out, seen by no reader) ─▶ publish (visible), or take_back (the commit failed)

Where it stands is in its watermarks.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from topics.codec import AnyRows
from topics.core import MIB, InvariantViolated, TopicConfig
from topics.log.clock import ClockMark
from topics.log.remove.ledger import KIND_NAMES, GoneTimes, LossesTold
from topics.log.run import HotColumns, Run, Times
from topics.log.runs import Runs
from topics.log.seal.segment_store import SegmentStore
from topics.log.seal.snapshot_state import CAPTURED_AS_IS, TopicState
from topics.log.watermarks import Hole, Watermarks
from topics.log.write.idempotency import TopicKeys

# More than this is not copied for the sake of a run that goes on: that would keep all others waiting.
_MOVED_BYTES = 4 * MIB


class Totals:
    """Sums over all topics, kept as topics change, so that quotas and metrics never walk over them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.losses_told = LossesTold(now_ms)
        self.bytes = 0
        self.records = 0
        self.pending_bytes = 0
        # Damaged stretches found in files, by recovery or by a reader.
        self.damage = 0
        self.start_counting()

    def start_counting(self) -> None:
        """From zero, once recovery is over: what it repeats was counted by the process that did it first."""
        # Records that were live until they went, by their kind in the ledger.
        self.removed_records = [0] * len(KIND_NAMES)
        self.removed_bytes = [0] * len(KIND_NAMES)
        # How many records readers received: in pages, through streams and sockets, in bulk reads.
        self.read_records = {"diff": 0, "stream": 0, "scan": 0}
        # How many tombstones readers received, by reason.
        self.tombstones = dict.fromkeys(("cap", "ttl", "mixed", "source_trim", "recreated"), 0)

    def note_pending(self, size: int) -> None:
        """Records of so many bytes have seqs and are not visible yet; fewer, if `size` is negative."""
        self.pending_bytes += size

    def published(self, count: int, size: int) -> None:
        """So many records that were assigned have become visible."""
        self.pending_bytes -= size
        self.records += count
        self.bytes += size

    def add_live(self, count: int, size: int) -> None:
        """So many records more are live; fewer, if the numbers are negative."""
        self.records += count
        self.bytes += size

    def found_damage(self) -> None:
        """A damaged stretch was found in a file."""
        self.damage += 1

    def removed(self, kind: int, count: int, size: int) -> None:
        self.removed_records[kind] += count
        self.removed_bytes[kind] += size

    def served(self, way: str, count: int) -> None:
        """A reader got so many records in this way."""
        self.read_records[way] += count

    def told(self, topic: str, reason: str, missed: int) -> None:
        """A reader of this topic got a tombstone."""
        self.tombstones[reason] += 1
        self.losses_told.note(topic, reason, missed)


@dataclass(slots=True, eq=False, repr=False)
class Topic(Watermarks):
    name: str = field(kw_only=True)
    config: TopicConfig = field(kw_only=True)
    store: SegmentStore = field(kw_only=True)
    totals: Totals = field(kw_only=True)
    clock_mark: ClockMark = field(kw_only=True)
    runs: Runs = field(default_factory=Runs)
    live_count: int = 0
    live_bytes: int = 0
    pending_count: int = 0
    pending_bytes: int = 0
    # Operations that wait for a sync: later ones of this topic do not overtake them.
    pending_sync: int = 0
    # Of writes that came with one, as long as there are some to be remembered.
    keys: TopicKeys | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    # The same moment on the clock that cannot be set: how long ago it was; and when its copies were read.
    last_read_steady_ms: int | None = None
    copies_read_steady_ms: int | None = None
    committed: bool = False
    dropped: bool = False
    # No topic of this name came before it, as far as is remembered.
    first_life: bool = True
    # Ephemeral records lie beside kept ones: caps then count what replay will not find.
    mixed: bool = False
    # State of what is layered on a topic: a Layer (queues keep their leases here).
    extension: Any = None
    # The name as it stands in answers.
    name_json: bytes = b""
    # How answers begin that say which topic, and which life of it.
    opening_json: bytes = b""
    # The topic that its records are copied from, while there are routers into it.
    source: "Topic | None" = None

    def __post_init__(self) -> None:
        Watermarks.__post_init__(self)
        self.name_json = self.name.encode()
        self._note_opening()

    def _note_opening(self) -> None:
        self.opening_json = b'{"topic":"%b","epoch":%d,' % (self.name_json, self.id)

    # --- life -------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Its creation is on disk: it may be found."""
        self.committed = True

    def begin_later_life(self) -> None:
        """There was a topic of this name before, or may have been."""
        self.first_life = False

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self.note_change()

    def read_at(self, now_ms: int, steady_ms: int) -> None:
        """A reader asked for its records."""
        self.last_read_ts = now_ms
        self.last_read_steady_ms = steady_ms

    def copies_read_at(self, steady_ms: int) -> None:
        """A reader asked for copies of its records."""
        self.copies_read_steady_ms = steady_ms

    def wait_for_sync(self) -> None:
        """An operation of this topic waits for a sync: later ones do not overtake it."""
        self.pending_sync += 1

    def note_sync(self) -> None:
        """The sync is over that an operation of this topic has waited for."""
        self.pending_sync -= 1

    def feed_from(self, source: "Topic | None") -> None:
        self.source = source

    def keep_keys(self, keys: TopicKeys | None) -> None:
        self.keys = keys

    def attach(self, extension: Any) -> None:
        self.extension = extension

    def drop(self) -> None:
        """The whole topic goes, with all its records."""
        self.dropped = True
        self.add_live(-self.live_count, -self.live_bytes)
        self._clear_pending()
        for run in self.runs:
            self.store.release(run)
        self.runs = Runs()

    def wake(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    # --- finding ----------------------------------------------------------------------------------------

    def first_live(self, seq: int) -> int:
        """The lowest live visible seq at or above `seq`, or head + 1."""
        for run, start, stop in self.runs.stretches(seq, self.head + 1):
            if run.live_count:
                if run.dead_count:
                    self.load_marks(run)
                found = run.first_live_index(start)
                if found < stop:
                    return run.base + found
        return self.head + 1

    # --- runs -------------------------------------------------------------------------------------------

    def load_marks(self, run: Run) -> None:
        """Bring the run's deletion marks into memory, if it has any."""
        if run.dead_count and run.dead is None:
            self.store.columns(run)

    def load_last_marks(self, run: Run) -> None:
        """The same for a run that goes with all its records; there may be hundreds of them at once."""
        if run.dead_count and run.dead is None:
            self.store.load_marks(run)

    def insert_run(self, run: Run) -> None:
        """Put a run that only the journal holds in its place."""
        self.runs.place(run)
        if run.hot is not None:
            self.store.unsealed.add(self, run)

    def remove_run(self, run: Run) -> None:
        """With all that it holds, in memory and in its file."""
        self.runs.take_out(run)
        if run.hot is not None or run.sealed is not None:
            self.store.release(run)

    # --- appending --------------------------------------------------------------------------------------

    def append(
        self, rows: AnyRows, position: int, *, is_kept: bool = True, times: Times | None = None
    ) -> None:
        """Add encoded records after the last assigned seq. No reader sees them before `publish`.

        No frame that has them lies below the journal's `position`. `is_kept` is False for records that no
        frame has at all. The config cannot tell: a change of it may be on its way, and in recovery the change
        comes before the frames of requests that arrived after it.
        """
        first_seq, count, size = self.assigned + 1, rows.count, rows.size
        if rows.first_seq != first_seq:
            raise InvariantViolated(
                f"topic {self.id}: seq {rows.first_seq} cannot follow seq {self.assigned}"
            )
        run = self._open_run(position, len(rows.text), is_kept=is_kept)
        try:
            added = run.extend(rows, times)
        except MemoryError:
            self._undo_extend(run)
            raise
        if is_kept:
            self.store.unsealed.grew(run, added)
        self.assigned += count
        self.pending_count += count
        self.pending_bytes += size
        self.totals.note_pending(size)
        self.last_ts = times[-1][1] if times else rows.ts

    def assign_ahead(self, count: int, size: int, ts: int) -> None:
        """Assign the next seqs to records that will be imported: they are being written."""
        self.assigned += count
        self.pending_count += count
        self.pending_bytes += size
        self.totals.note_pending(size)
        self.last_ts = ts

    def import_run(self, run: Run, segment: int = 0) -> None:
        """Take a finished run of records whose seqs were assigned ahead; `publish` makes them visible.

        `segment` has the records; 0 for a run that stays in memory.
        """
        if not self.head < run.base <= run.last <= self.assigned:
            raise InvariantViolated(
                f"topic {self.id}: cannot import seqs {run.base} to {run.last} "
                f"between head {self.head} and assigned {self.assigned}"
            )
        # Records may follow it already. Until a topic is mixed, all its runs are of one class.
        self.mixed |= bool(self.runs) and self.runs[-1].ephemeral is not run.ephemeral
        if segment:
            self.store.seal(run, segment, array("I"))
        self.runs.place(run)

    def _open_run(self, position: int, row_bytes: int, *, is_kept: bool) -> Run:
        """The run that takes the next records; a full or sealed run takes no more."""
        unsealed = self.store.unsealed
        room = 0
        if self.runs:
            run = self.runs[-1]
            hot = run.hot
            if (
                hot is not None
                and not run.frozen
                and run.base + run.count == self.assigned + 1
                and run.count < unsealed.max_events
                and hot.size < unsealed.max_bytes
                and run.ephemeral is not is_kept
                and not (hot.size > _MOVED_BYTES and hot.has_to_move(row_bytes))
            ):
                if position < run.start_position:
                    unsealed.lower(run, position)
                return run
            if run.ephemeral is is_kept:
                self.mixed = True
            unsealed.complete(run)
            if hot is not None and run.count >= unsealed.max_events:
                room = hot.room_for_next
        base = self.assigned + 1
        run = Run(self.id, base, HotColumns(base, room), start_position=position, ephemeral=not is_kept)
        self.runs.place(run)
        if is_kept:
            unsealed.add(self, run)
        return run

    def _undo_extend(self, run: Run) -> None:
        """Remove what a failed `extend` has left: the run is as it was before."""
        if run.count:
            run.cut(run.count)
        else:
            self._remove_last_run()  # a run without records could not be sealed

    def _remove_last_run(self) -> None:
        self.store.unsealed.discard(self.runs.take_last())

    def publish(self, count: int, size: int, ts: int, first_ts: int | None = None) -> None:
        """Make assigned records visible, in the order of their seqs.

        `first_ts` is the time of the first record if it differs from `ts`.
        """
        self.pending_count -= count
        self.pending_bytes -= size
        if not self.live_count:
            self.floor = self.head + 1
            self.floor_ts = ts if first_ts is None else first_ts
        self.head += count
        self.live_count += count
        self.live_bytes += size
        self.last_write_ts = ts
        self.changed.add(self.id)
        self.totals.published(count, size)
        if self.head > self.assigned or self.pending_count < 0 or self.pending_bytes < 0:
            raise InvariantViolated(
                f"topic {self.id}: head {self.head}, assigned {self.assigned}, "
                f"pending {self.pending_count} records and {self.pending_bytes} bytes"
            )

    def add_live(self, count: int, size: int) -> None:
        self.live_count += count
        self.live_bytes += size
        self.totals.add_live(count, size)
        self.changed.add(self.id)
        if self.live_count < 0 or self.live_bytes < 0:
            raise InvariantViolated(
                f"topic {self.id}: {self.live_count} live records with {self.live_bytes} bytes"
            )

    def take_back(self, upto: int, count: int, size: int) -> None:
        """The seqs above `upto`, which were given out last, were refused: records of so many bytes."""
        self._forget_above(upto)
        self.pending_count -= count
        self.pending_bytes -= size
        self.totals.note_pending(-size)

    def take_back_all(self) -> None:
        """Forget everything above the visible head: its commit failed, and there will be no other."""
        self._forget_above(self.head)
        self.pending_sync = 0
        self._clear_pending()

    def _forget_above(self, seq: int) -> None:
        while self.runs and self.runs[-1].base > seq:
            self._remove_last_run()
        if self.runs and self.runs[-1].last > seq:
            run = self.runs[-1]
            size = run.cut(seq - run.base + 1)
            if not run.ephemeral:
                self.store.unsealed.shrank(size)
        if self.keys is not None:
            self.keys.take_back(seq)
        self.assigned = seq

    def _clear_pending(self) -> None:
        self.totals.note_pending(-self.pending_bytes)
        self.pending_count = self.pending_bytes = 0

    def add_hole(
        self,
        first: int,
        last: int,
        kind: int,
        *,
        interior: bool | None = None,
        hops: int = 1,
        found_ms: int | None = None,
    ) -> None:
        """Seqs at the top that will never be readable: loss at the front, or a gap inside the log."""
        if last < first:
            return
        self.head = max(self.head, last)
        self.assigned = max(self.assigned, last)
        interior = self.live_count > 0 if interior is None else interior
        self.note_hole(first, last, kind, interior=interior, hops=hops, found_ms=found_ms)
        if not self.live_count:
            self.floor = self.head + 1

    # --- restoring --------------------------------------------------------------------------------------

    def restore_marks(self, state: TopicState) -> None:
        """Take the watermarks of a snapshot. Live totals follow from the runs once those are complete."""
        for name in CAPTURED_AS_IS:
            setattr(self, name, getattr(state, name))
        self.assigned, self.reserve_asked = self.head, self.reserved
        self.holes = [Hole(*hole) for hole in state.holes]
        self.ledger.load(state.ledger)
        if state.gone_times:
            self.gone_times = GoneTimes(state.gone_times)

    def settle_totals(self) -> None:
        """The runs are complete, or others than before: what they hold is what is live."""
        count, size = sum(run.live_count for run in self.runs), sum(run.live_bytes for run in self.runs)
        self.add_live(count - self.live_count, size - self.live_bytes)

    def renumber(self, topic_id: int) -> None:
        """For restoring: another id, and so another epoch."""
        self.id = topic_id
        self._note_opening()
        for run in self.runs:
            run.renumber(topic_id)
        self.note_change()

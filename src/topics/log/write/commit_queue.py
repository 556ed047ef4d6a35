"""The commit queue: operations wait here until the journal has them, then take effect in order.

    enqueue ─▶ pending (append requests of a turn) ─▶ assign ─┐
    submit  ──────────────────────────────────────────────────┴▶ waiting ─▶ flush (one vectored write)
                                                                   ├─ other classes ─▶ apply
                                                                   └─ class fsync ─▶ one sync ─▶ apply

The write happens at once (`flush`), or on a thread of the commit loop (`begin_write` and `finish_write`),
because file systems sometimes make a writer wait. One group is under way at a time.

An operation never overtakes an earlier one of the same topic: it waits while an earlier one waits for a sync.

    CommitQueue     operations that the journal does not have, and the group that is being written
    HeldBack        operations that are not ready, and later operations of their topics
    Effects         operations that the journal has: they take effect, at once or after a sync
    Refusals        what becomes of operations that the disk refuses
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.core import MIB, ApiError, Histogram, InvariantViolated
from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp, Op
from topics.log.write.refusals import (
    GroupWrite,
    Refusals,
    Unfinished,
    frames_of,
    without_refused,
)
from topics.storage import FrameDraft, Journal, Reserve, SyncTicket, Witness, is_full

if TYPE_CHECKING:
    from topics.log.write.append import Append

log = logging.getLogger("topics.commit")

SYNC_BOUNDS_US = (50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000)
# Bodies of append requests that are decoded, encoded and written in one go. What exceeds it joins the next
# flush, so that other requests have their turn in between.
FLUSH_BYTES = 2 * MIB
# More operations than this in one turn of the loop mean that the disk cannot keep up.
MAX_WAITING_OPS = 100_000


class Counters:
    """Journal activity, as the metrics show it."""

    def __init__(self) -> None:
        self.frames = self.batches = self.bytes_written = self.rotations = self.submit_full = 0
        self.queue_depth_peak = 0
        self.syncs_us = Histogram(SYNC_BOUNDS_US)

    @property
    def fsyncs(self) -> int:
        return self.syncs_us.count


class HeldBack:
    """Operations that are not ready, and later ones of the same topics, in their order."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._topics: set[Topic] = set()

    def holds(self, topic: Topic) -> bool:
        """Whether a write to the topic has to wait."""
        return topic in self._topics

    def without_held(self, ops: list[Op]) -> list[Op]:
        """Return operations that may be written now.

        Hold back those that are not ready, and later ones of their topics.
        """
        free: list[Op] = []
        for op in ops:
            topics = op.topics
            if op.is_ready and self._topics.isdisjoint(topics):
                free.append(op)
            else:
                self.ops.append(op)
                self._topics.update(topics)
        return free

    def take_built_on(self, refused_topics: set[Topic], refused: list[Op]) -> None:
        """Move operations that build on refused ones to `refused`, and their topics to `refused_topics`."""
        self.ops = without_refused(self.ops, refused_topics, refused)
        self._topics = {topic for op in self.ops for topic in op.topics}

    def take_all(self) -> list[Op]:
        ops, self.ops, self._topics = self.ops, [], set()
        return ops


class Effects:
    """Operations that the journal has. They take effect in their order, at once or after a sync."""

    def __init__(self, journal: Journal, witness: Witness, counters: Counters, refusals: Refusals) -> None:
        self._journal = journal
        self._witness = witness
        self._counters = counters
        self._refusals = refusals
        # Operations are taking effect right now: a callback must not flush, only submit.
        self.are_running = False
        # Operations that wait for the next sync, and for the one that is under way.
        self.unsynced: list[Op] = []
        self._syncing: list[Op] = []
        self._sync_started = 0.0

    @property
    def depth(self) -> int:
        return len(self.unsynced) + len(self._syncing)

    def take_all(self) -> list[Op]:
        """Return all operations that wait for a sync, and forget them."""
        ops, self._syncing, self.unsynced = [*self._syncing, *self.unsynced], [], []
        return ops

    def run_written(self, ops: list[Op], size: int, started: float) -> None:
        """Let operations take effect that were just written, unless they wait for a sync.

        `size`: bytes of journal that they take. `started`: when the write began.
        """
        wal_ms = (time.perf_counter() - started) * 1000
        self._counters.batches += 1
        self._counters.bytes_written += size
        has_unsynced = bool(self.unsynced or self._syncing)
        self.are_running = True
        try:
            for op in ops:
                op.wal_ms = wal_ms
                if op.sync or (has_unsynced and any(topic.pending_sync for topic in op.topics)):
                    self.unsynced.append(op)
                    has_unsynced = True
                    for topic in op.topics:
                        topic.wait_for_sync()
                else:
                    op.apply()
        except (OSError, MemoryError, InvariantViolated) as error:
            self._refusals.latch(error, doubtful=_from(ops, op))
        finally:
            self.are_running = False

    def _run_synced(self, ops: list[Op], took_s: float) -> None:
        self._counters.syncs_us.observe(int(took_s * 1e6))
        fsync_ms = max(took_s * 1000, 0.001)
        self.are_running = True
        try:
            for op in ops:
                for topic in op.topics:
                    topic.note_sync()
                op.fsync_ms = fsync_ms
                op.apply()
        except (OSError, MemoryError, InvariantViolated) as error:
            self._refusals.latch(error, doubtful=_from(ops, op))
        finally:
            self.are_running = False

    def begin_sync(self) -> SyncTicket:
        """Take everything that waits for the disk; later arrivals gather for the next sync."""
        self._syncing, self.unsynced = self.unsynced, []
        self._sync_started = time.perf_counter()
        return self._journal.begin_sync()

    def finish_sync(self, ticket: SyncTicket, error: BaseException | None = None) -> None:
        if error is not None:
            self._refusals.latch(error)
            return
        ops, self._syncing = self._syncing, []
        self.note_sync(ticket)
        self._run_synced(ops, time.perf_counter() - self._sync_started)

    def note_sync(self, ticket: SyncTicket) -> None:
        """Note that the disk has what the journal held when the ticket was taken."""
        self._journal.finish_sync(ticket)
        self._witness.synced(self._journal.synced)

    def sync_here(self) -> None:
        """Sync in the caller's thread."""
        ticket = self.begin_sync()
        try:
            ticket.run()
        except OSError as error:
            self.finish_sync(ticket, error)
        else:
            self.finish_sync(ticket)

    def sync_for_reader(self) -> None:
        """Sync on the loop, for a reader who must not be answered before what is already written shows.

        This covers operations that wait for a sync that is under way, too; that one finds nothing left.
        """
        started = time.perf_counter()
        try:
            self._journal.begin_sync().run()
        except OSError as error:
            self._refusals.latch(error)
            return
        self._run_synced(self.take_all(), time.perf_counter() - started)


class CommitQueue:
    """The operations that the journal does not have yet, in their order."""

    def __init__(
        self,
        journal: Journal,
        witness: Witness,
        counters: Counters,
        reserve: Reserve,
        assign: "Callable[[list[Append]], None]",
    ) -> None:
        """`assign` submits operations for append requests. It raises only if it has not begun to do so."""
        self._journal = journal
        self._reserve = reserve
        self._witness = witness
        self._assign = assign
        self.refusals = Refusals(journal, reserve, self)
        self.effects = Effects(journal, witness, counters, self.refusals)
        self.counters = counters
        self._wake: Callable[[], None] = lambda: None
        self._is_woken = False
        # The number of the group that gathers now.
        self.group = 1
        # Append requests whose records have no seqs yet, in the order of their arrival.
        self._pending: list[Append] = []
        self._is_assigning = False
        # Bytes of the bodies that were assigned for the next flush. The commit loop looks at them before it
        # decides how to write.
        self._assigned_bytes = 0
        # The number of append requests in the last group.
        self.last_requests = 0
        self.waiting: list[Op] = []
        # Bytes of records in the operations that wait.
        self.waiting_bytes = 0
        self._held = HeldBack()
        # There are operations that are not ready, among those that wait or are held back.
        self._has_unready = False
        self.under_way: GroupWrite | None = None

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake` from now on when there is something to flush."""
        self._wake = wake

    @property
    def depth(self) -> int:
        writing = 0 if self.under_way is None else len(self.under_way.ops)
        return len(self._pending) + len(self.waiting) + self.held + writing + self.effects.depth

    @property
    def wants_flush(self) -> bool:
        return bool(self.waiting or self._pending)

    @property
    def has_unwritten(self) -> bool:
        """Whether something was submitted that the journal does not have."""
        return bool(self.waiting or self._pending or self._held.ops)

    # --- append requests --------------------------------------------------------------------------------

    def enqueue(self, request: "Append") -> None:
        """Gather an append request for the next flush."""
        pending = self._pending
        if len(pending) >= MAX_WAITING_OPS:
            request.fail(self._crowded())
            return
        pending.append(request)
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def assign_pending(self, most_bytes: int | None = None) -> None:
        """Submit operations for the gathered append requests, so that what follows comes after them.

        With `most_bytes`, stop after so many bytes of bodies; the rest joins the next flush.
        """
        if not self._pending or self._is_assigning:
            return
        requests, self._pending = self._pending, []
        if most_bytes is not None:
            size = self._assigned_bytes
            for index, request in enumerate(requests):
                if size > most_bytes:
                    requests, self._pending = requests[:index], requests[index:]
                    break
                size += len(request.body) if request.write is None else request.write.size
            self._assigned_bytes = size
            if not requests:
                return
        self.last_requests = len(requests)
        self._is_assigning = True
        try:
            self._assign(requests)
        except Exception as error:
            log.exception("append requests could not be judged")
            self.give_up(error)
            failure = self.refusals.failure or ApiError("internal", str(error))
            for request in requests:
                request.fail(failure)
        finally:
            self._is_assigning = False

    # --- operations -------------------------------------------------------------------------------------

    def require_growth(self, ops: int) -> None:
        """Raise if so many operations that make the log larger could not be submitted now."""
        refusal = self.refusals.refusal
        if refusal is not None:
            raise refusal.anew()
        if len(self.waiting) + len(self._held.ops) + ops > MAX_WAITING_OPS:
            raise self._crowded()

    def require_room(self, ops: int) -> None:
        """Raise if so many operations that do not make the log larger could not be submitted now."""
        refusals = self.refusals
        if refusals.failure is not None:
            raise refusals.failure.anew()
        if refusals.is_stuck and refusals.refusal is not None:
            raise refusals.refusal.anew()
        if len(self.waiting) + len(self._held.ops) + ops > MAX_WAITING_OPS:
            raise self._crowded()

    def _crowded(self) -> ApiError:
        self.counters.submit_full += 1
        return ApiError("throttled", "the journal queue is full", {"retry_after_ms": 1000})

    def submit(self, op: Op) -> None:
        self.assign_pending()
        self.require_room(1)
        self._has_unready |= not op.is_ready
        self.submit_checked(op)

    def submit_checked(self, op: Op, size: int = 0, records: int = 0) -> None:
        """Submit an operation for which there is room and that is ready.

        `records`: how many the journal gets. `size`: bytes of their rows.
        """
        self.waiting.append(op)
        self.waiting_bytes += size
        self.counters.frames += records
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    @property
    def held(self) -> int:
        """How many operations are held back because they, or earlier ones, are not ready."""
        return len(self._held.ops)

    def holds(self, topic: Topic) -> bool:
        """Whether a write to the topic would be held back. Exact after a flush."""
        return self._held.holds(topic)

    def go_on(self) -> None:
        """Let operations that are held back go on if they are ready now."""
        self.waiting[:0] = self._held.take_all()
        self._has_unready = not all(op.is_ready for op in self.waiting)
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def abandon(self, unready: Op, error: ApiError) -> None:
        """Fail an operation that will never be ready, and those behind it, which build on it."""
        self.go_on()
        if unready not in self.waiting:
            return  # it has failed with others
        at = self.waiting.index(unready)
        lost = [unready]
        rest = without_refused(self.waiting[at + 1 :], set(unready.topics), lost)
        self.waiting = self.waiting[:at] + rest
        for op in reversed(lost):
            op.withdraw()
        unready.fail(error)
        for op in lost[1:]:
            op.fail(ApiError("throttled", "a large commit before it was refused", {"retry_after_ms": 1000}))

    def take_growth(self, grown: set[Topic], refused: list[Op]) -> None:
        """Move what makes the log larger, or builds on refused operations, to `refused`."""
        self._held.take_built_on(grown, refused)
        self.waiting = without_refused(self.waiting, grown, refused, without_growth=True)

    def take_unfinished(self) -> Unfinished:
        """Take all operations that have not taken effect out of the queue."""
        unwritten = [*self._held.take_all(), *self.waiting]
        under_way, self.under_way, self.waiting = self.under_way, None, []
        return Unfinished(self.effects.take_all(), under_way, unwritten)

    # --- writing ----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand every waiting frame to the operating system, then apply what needs no sync."""
        if self.under_way is not None:
            self.settle()
        ops = self._take()
        if not ops:
            return
        journal, started = self._journal, time.perf_counter()
        before = journal.position
        frames: list[FrameDraft] = []
        for op in ops:
            frames += op.frames
        try:
            journal.write(frames)
        except (OSError, MemoryError, InvariantViolated) as error:
            ops = self.refusals.rescue(error, ops)
            if not ops:
                return
        self._witness.acked(journal.position)
        self.effects.run_written(ops, journal.position - before, started)

    def _take(self) -> list[Op]:
        """Take the operations that are to be written now."""
        if self._pending:
            self.assign_pending(FLUSH_BYTES)
        self._is_woken = False
        self._assigned_bytes = 0
        ops, self.waiting = self.waiting, []
        self.waiting_bytes = 0
        if self._has_unready:
            ops = self._held.without_held(ops)
        for op in ops:
            if op.is_late:
                op.prepare()
        self.group += 1
        if len(ops) > self.counters.queue_depth_peak:
            self.counters.queue_depth_peak = len(ops)
        if self._pending and not self._is_woken:
            self._is_woken = True
            self._wake()
        return ops

    @property
    def is_writing(self) -> bool:
        return self.under_way is not None

    def begin_write(self) -> GroupWrite | None:
        """Take every waiting frame; the caller runs the write on a thread, and then calls `finish_write`."""
        ops = self._take()
        if not ops:
            return None
        try:
            write = self._journal.begin_write(frames_of(ops))
        except (MemoryError, InvariantViolated) as error:
            self.refusals.latch(error, torn=ops)
            return None
        self.under_way = GroupWrite(ops, write)
        return self.under_way

    def finish_write(self, write: GroupWrite) -> None:
        # Otherwise a reader or a rotation could not wait, and has settled it.
        if write is self.under_way:
            self.settle()

    def settle(self) -> None:
        """Wait for the group that is under way, and let it take effect."""
        write = self.under_way
        if write is None or not self.land():
            return
        self.under_way = None
        self.effects.run_written(write.ops, write.written, write.started)

    def land(self) -> bool:
        """Wait until the group that is under way is in the journal, if there is one; False if that failed."""
        write = self.under_way
        if write is None or write.has_landed:
            return True
        write.wait()
        before = self._journal.position
        if write.error is None:
            self._journal.finish_write(write.written)
        else:
            write.ops = self.refusals.rescue(write.error, write.ops)
            if self.refusals.failure is not None:
                return False
            write.written = self._journal.position - before
        write.has_landed = True
        self._witness.acked(self._journal.position)
        return True

    # --- beside the queue -------------------------------------------------------------------------------

    def note(self, frames: list[FrameDraft]) -> bool:
        """Write frames to the journal now: a consequence of the operation that takes effect.

        Return False if they could not be written.
        """
        # Only into the journal: its operations take effect when those of the group before have done so.
        if self.refusals.is_stuck or not self.land():
            return False
        try:
            self._journal.write(frames)
        except OSError as error:
            if not self.refusals.rescue(error, [CallbackOp(frames, None, _ignore, _ignore, sync=False)]):
                return False
        self._witness.acked(self._journal.position)
        return True

    def note_synced(self, frames: list[FrameDraft]) -> bool:
        """Write frames to the journal and sync it. No waiting operation takes effect by this sync."""
        if not self.note(frames):
            return False
        try:
            self._journal.begin_sync().run()
        except OSError as error:
            self.refusals.latch(error)
            return False
        return True

    def rotate(self, *, to_adopt: bool = False) -> bool:
        """Go on in a new journal file; False when there is no room for one."""
        while True:
            try:
                self._journal.rotate(to_adopt=to_adopt)
                return True
            except OSError as error:
                if not is_full(error):
                    self.refusals.latch(error)
                    return False
                self.refusals.note_full()
                if not self._reserve.give(0):
                    return False

    # --- in the caller's thread -------------------------------------------------------------------------

    def sync_now(self) -> None:
        """Flush and sync in the caller's own thread (in-process use, shutdown, tests)."""
        self.flush()
        if self.effects.unsynced:
            self.effects.sync_here()

    def sync_journal(self) -> None:
        """Make everything written so far durable, also what no class asks to sync."""
        self.sync_now()
        if self.refusals.failure is None and self._journal.synced < self._journal.position:
            self.effects.sync_here()

    def give_up(self, cause: BaseException, *unfinished: Op) -> None:
        """Take no more writes: the journal refused something outside an operation. Fail `unfinished`."""
        self.refusals.latch(cause, refused=unfinished)


def _from(ops: list[Op], failed: Op) -> list[Op]:
    """The operation that could not take effect, and those after it: it had to read, and could not.

    The journal has them, and the next process applies them; until then no writer waits for an answer in vain.
    """
    return ops[next(at for at, op in enumerate(ops) if op is failed) :]


def _ignore(_: object) -> None:
    return None

"""The commit queue: operations wait here until the journal has them, then take effect in order.

    enqueue ─▶ pending (append requests of a turn) ─▶ assign ─┐
    submit  ──────────────────────────────────────────────────┴▶ waiting ─▶ flush (one vectored write)
                                                                   ├─ other classes ─▶ apply
                                                                   └─ class fsync ─▶ one sync ─▶ apply

The write happens at once (`flush`), or on a thread of the commit loop (`begin_write` and `finish_write`),
because file systems sometimes make a writer wait. One group is under way at a time.

An operation never overtakes an earlier one of the same topic: it waits while an earlier one waits for a sync.
The queue keeps an operation that is not ready out of the journal, and later operations of its topics too.

`refusals` decides what becomes of an operation that the disk refuses.
"""

import logging
import time
from collections.abc import Callable

from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp, Op, Request
from topics.log.write.refusals import GroupWrite, Refusals, frames_of, without_built_on
from topics.storage import FrameDraft, Journal, Reserve, SyncTicket, Witness, is_full
from topics.values import MIB, ApiError, Histogram, InvariantViolated

log = logging.getLogger("topics.commit")

SYNC_BOUNDS_US = (50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000)
# Bodies of append requests that are decoded, encoded and written in one go. What exceeds it joins the next
# flush, so that other requests have their turn in between.
FLUSH_BYTES = 2 * MIB
# More operations than this in one turn of the loop mean that the disk cannot keep up.
MAX_WAITING_OPS = 100_000


class Counters:
    """Journal activity, as the metrics show it."""

    __slots__ = (
        "batches",
        "bytes_written",
        "frames",
        "queue_depth_peak",
        "rotations",
        "submit_full",
        "syncs_us",
    )

    def __init__(self) -> None:
        self.frames = self.batches = self.bytes_written = self.rotations = self.submit_full = 0
        self.queue_depth_peak = 0
        self.syncs_us = Histogram(SYNC_BOUNDS_US)

    @property
    def fsyncs(self) -> int:
        return self.syncs_us.count


class CommitQueue(Refusals):
    def __init__(
        self,
        journal: Journal,
        witness: Witness,
        counters: Counters,
        reserve: Reserve,
        assign: Callable[[list[Request]], None],
    ) -> None:
        """`assign` submits operations for append requests; see `append`."""
        super().__init__(journal, reserve)
        self._witness = witness
        self._assign = assign
        self._sync_started = 0.0
        # The number of the group that gathers now.
        self.group = 1
        self.counters = counters
        # Operations are taking effect right now: a callback must not flush, only submit.
        self.applying = False
        # Set by the commit loop: called when there is something to flush.
        self.wake: Callable[[], None] = lambda: None
        self._is_woken = False
        # Append requests whose records have no seqs yet, in the order of their arrival.
        self._pending: list[Request] = []
        self._is_assigning = False
        # Bytes of the bodies that were assigned for the next flush. The commit loop looks at them before it
        # decides how to write.
        self._assigned_bytes = 0
        # The number of append requests in the last group.
        self.last_requests = 0
        # Bytes of records in the operations that wait.
        self.waiting_bytes = 0
        # There are operations that are not ready, among those that wait or are held.
        self._has_unready = False

    @property
    def depth(self) -> int:
        writing = 0 if self.under_way is None else len(self.under_way.ops)
        in_memory = len(self._pending) + len(self.waiting) + len(self._held)
        return in_memory + writing + len(self.unsynced) + len(self._syncing)

    @property
    def wants_flush(self) -> bool:
        return bool(self.waiting or self._pending)

    @property
    def has_unwritten(self) -> bool:
        """Whether something was submitted that the journal does not have."""
        return bool(self.waiting or self._pending or self._held)

    def enqueue(self, request: Request) -> None:
        """Gather an append request for the next flush."""
        pending = self._pending
        if len(pending) >= MAX_WAITING_OPS:
            request.fail(self._crowded())
            return
        pending.append(request)
        if not self._is_woken:
            self._is_woken = True
            self.wake()

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
            # Some of them may have seqs: what the log holds is not certain any more.
            log.exception("append requests could not be judged")
            self._latch(error)
            assert self.failure is not None
            for request in requests:
                request.fail(self.failure)
        finally:
            self._is_assigning = False

    def require_growth(self, ops: int) -> None:
        """Raises when so many operations that make the log larger could not be submitted now."""
        if self.refusal is not None:
            raise self.refusal.anew()
        if len(self.waiting) + len(self._held) + ops > MAX_WAITING_OPS:
            raise self._crowded()

    def require_room(self, ops: int) -> None:
        """The same for those that do not."""
        if self.failure is not None:
            raise self.failure.anew()
        if self.is_stuck and self.refusal is not None:
            raise self.refusal.anew()
        if len(self.waiting) + len(self._held) + ops > MAX_WAITING_OPS:
            raise self._crowded()

    def _crowded(self) -> ApiError:
        self.counters.submit_full += 1
        return ApiError("throttled", "the journal queue is full", {"retry_after_ms": 1000})

    def submit(self, op: Op) -> None:
        self.assign_pending()
        self.require_room(1)
        self._has_unready |= not op.is_ready
        self.submit_checked(op)

    def submit_checked(self, op: Op, size: int = 0) -> None:
        """Submit an operation for which there is room and that is ready. `size`: bytes of its records."""
        self.waiting.append(op)
        self.waiting_bytes += size
        if not self._is_woken:
            self._is_woken = True
            self.wake()

    def flush(self) -> None:
        """Hand every waiting frame to the operating system, then apply what needs no sync."""
        if self.under_way is not None:
            self.settle()
        ops = self._take()
        if not ops:
            return
        journal, started = self._journal, time.perf_counter()
        before = journal.position
        try:
            journal.write([frame for op in ops for frame in op.frames])
        except (OSError, MemoryError, InvariantViolated) as error:
            ops = self._rescue(error, ops)
            if not ops:
                return
        self._witness.acked(journal.position)
        self._written(ops, journal.position - before, started)

    def _take(self) -> list[Op]:
        """The operations that are written now."""
        if self._pending:
            self.assign_pending(FLUSH_BYTES)
        self._is_woken = False
        self._assigned_bytes = 0
        ops, self.waiting = self.waiting, []
        self.waiting_bytes = 0
        if self._has_unready:
            ops = self._hold_back(ops)
        self.group += 1
        if len(ops) > self.counters.queue_depth_peak:
            self.counters.queue_depth_peak = len(ops)
        if self._pending and not self._is_woken:
            self._is_woken = True
            self.wake()
        return ops

    # --- what is not ready ------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self._held)

    def holds(self, topic: Topic) -> bool:
        """Whether what is written to the topic now has to wait. Exact after a flush."""
        return topic in self._held_topics

    def _hold_back(self, ops: list[Op]) -> list[Op]:
        """Those that may be written now: none that is not ready, nor one of the same topics behind it."""
        free: list[Op] = []
        for op in ops:
            topics = op.topics
            if op.is_ready and self._held_topics.isdisjoint(topics):
                free.append(op)
            else:
                self._held.append(op)
                self._held_topics.update(topics)
        return free

    def go_on(self) -> None:
        """An operation has become ready: what was held is looked at again, in its order."""
        self.waiting[:0] = self._held
        self._held, self._held_topics = [], set()
        self._has_unready = not all(op.is_ready for op in self.waiting)
        if not self._is_woken:
            self._is_woken = True
            self.wake()

    def abandon(self, unready: Op, error: ApiError) -> None:
        """It will never be ready, and fails. So do those behind it: they build on what it would have been."""
        self.go_on()
        if unready not in self.waiting:
            return  # it has failed with others, and knows
        at = self.waiting.index(unready)
        lost = [unready]
        rest = without_built_on(self.waiting[at + 1 :], set(unready.topics), lost)
        self.waiting = self.waiting[:at] + rest
        for op in reversed(lost):
            op.withdraw()
        unready.fail(error)
        for op in lost[1:]:
            op.fail(ApiError("throttled", "a large commit before it was refused", {"retry_after_ms": 1000}))

    def _written(self, ops: list[Op], size: int, started: float) -> None:
        wal_ms = (time.perf_counter() - started) * 1000
        self.counters.batches += 1
        self.counters.bytes_written += size
        has_unsynced = bool(self.unsynced or self._syncing)
        self.applying = True
        try:
            for op in ops:
                op.wal_ms = wal_ms
                if op.sync or (has_unsynced and self._must_wait(op)):
                    self._hold(op)
                    has_unsynced = True
                else:
                    op.apply()
        except (OSError, MemoryError, InvariantViolated) as error:
            self._latch(error, doubtful=_from(ops, op))
        finally:
            self.applying = False

    # --- writing on another thread ----------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        return self.under_way is not None

    def begin_write(self) -> GroupWrite | None:
        """Take every waiting frame; the caller has it run, and then calls `finish_write`."""
        ops = self._take()
        if not ops:
            return None
        try:
            write = self._journal.begin_write(frames_of(ops))
        except (MemoryError, InvariantViolated) as error:
            self._latch(error, torn=ops)
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
        self._written(write.ops, write.written, write.started)

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
            write.ops = self._rescue(write.error, write.ops)
            if self.failure is not None:
                return False
            write.written = self._journal.position - before
        write.has_landed = True
        self._witness.acked(self._journal.position)
        return True

    # --- beside the queue -------------------------------------------------------------------------------

    def note(self, frames: list[FrameDraft]) -> bool:
        """Write frames to the journal now: a consequence of the operation that takes effect.

        Returns False when they could not be written.
        """
        # Only into the journal: its operations take effect when those of the group before have done so.
        if self.is_stuck or not self.land():
            return False
        try:
            self._journal.write(frames)
        except OSError as error:
            if not self._rescue(error, [CallbackOp(frames, None, _ignore, _ignore, sync=False)]):
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
            self._latch(error)
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
                    self._latch(error)
                    return False
                self.note_full()
                if not self._reserve.give(0):
                    return False

    @staticmethod
    def _must_wait(op: Op) -> bool:
        return any(topic.pending_sync for topic in op.topics)

    def _hold(self, op: Op) -> None:
        self.unsynced.append(op)
        for topic in op.topics:
            topic.pending_sync += 1

    @staticmethod
    def _unhold(op: Op) -> None:
        for topic in op.topics:
            topic.pending_sync -= 1

    @property
    def wants_sync(self) -> bool:
        return bool(self.unsynced)

    def begin_sync(self) -> SyncTicket:
        """Take everything that waits for the disk; later arrivals gather for the next sync."""
        self._syncing, self.unsynced = self.unsynced, []
        self._sync_started = time.perf_counter()
        return self._journal.begin_sync()

    def finish_sync(self, ticket: SyncTicket, error: BaseException | None = None) -> None:
        if error is not None:
            self._latch(error)
            return
        ops, self._syncing = self._syncing, []
        self.note_sync(ticket)
        elapsed = time.perf_counter() - self._sync_started
        self.counters.syncs_us.observe(int(elapsed * 1e6))
        self._apply_synced(ops, max(elapsed * 1000, 0.001))

    def note_sync(self, ticket: SyncTicket) -> None:
        """What the journal held when the ticket was taken is on disk."""
        self._journal.finish_sync(ticket)
        self._witness.synced(self._journal.synced)

    def _apply_synced(self, ops: list[Op], fsync_ms: float) -> None:
        self.applying = True
        try:
            for op in ops:
                self._unhold(op)
                op.fsync_ms = fsync_ms
                op.apply()
        except (OSError, MemoryError, InvariantViolated) as error:
            self._latch(error, doubtful=_from(ops, op))
        finally:
            self.applying = False

    def sync_now(self) -> None:
        """Flush and sync in the caller's own thread (in-process use, shutdown, tests)."""
        self.flush()
        if self.wants_sync:
            self._sync_here()

    def _sync_here(self) -> None:
        ticket = self.begin_sync()
        try:
            ticket.run()
        except OSError as error:
            self.finish_sync(ticket, error)
        else:
            self.finish_sync(ticket)

    def sync_inline(self) -> None:
        """Sync on the loop, for a reader who must not be answered before what is already written shows.

        Whatever waited for a sync that is still under way is covered as well; that one finds nothing left.
        """
        started = time.perf_counter()
        try:
            self._journal.begin_sync().run()
        except OSError as error:
            self._latch(error)
            return
        ops, self._syncing, self.unsynced = [*self._syncing, *self.unsynced], [], []
        elapsed = time.perf_counter() - started
        self.counters.syncs_us.observe(int(elapsed * 1e6))
        self._apply_synced(ops, max(elapsed * 1000, 0.001))

    def sync_journal(self) -> None:
        """Make everything written so far durable, also what no class asks to sync."""
        self.sync_now()
        if self.failure is None and self._journal.synced < self._journal.position:
            self._sync_here()


def _from(ops: list[Op], failed: Op) -> list[Op]:
    """The operation that could not take effect, and those after it: it had to read, and could not.

    The journal has them, and the next process applies them; until then no writer waits for an answer in vain.
    """
    return ops[next(at for at, op in enumerate(ops) if op is failed) :]


def _ignore(_: object) -> None:
    return None

"""The commit queue: operations wait here until the journal has them, then take effect in order.

    submit ─▶ waiting ─▶ flush (one vectored write for all) ─▶ apply
                                   └─ class fsync: ─▶ unsynced ─▶ one sync for all ─▶ apply

The write happens at once (`flush`), or on a thread of the commit loop (`begin_write` and `finish_write`):
file systems make a writer wait now and then, and a loop that waits serves no client. One group is under way
at a time; what has to be in the journal meanwhile waits for it.

An operation of a topic never overtakes an earlier one of the same topic: behind an operation that waits for
a sync, later ones wait too. One that is not ready yet is held back from the journal, and those behind it too.

What becomes of an operation that the disk refuses is in `refusals`.
"""

import time
from collections.abc import Callable

from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp, Op
from topics.log.write.refusals import GroupWrite, Refusals, without_built_on
from topics.storage import Journal, Reserve, SyncTicket, Witness, is_full
from topics.values import ApiError, Histogram

SYNC_BOUNDS_US = (50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000)
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
    def __init__(self, journal: Journal, witness: Witness, counters: Counters, reserve: Reserve) -> None:
        super().__init__(journal, reserve)
        self._witness = witness
        self._sync_started = 0.0
        # Number of the group that gathers now.
        self.group = 1
        self.counters = counters
        # Operations are taking effect right now: a callback must not flush, only submit.
        self.applying = False
        # Set by the commit loop: called when there is something to flush or to sync; and when that need not
        # wait for anything else to come.
        self.wake: Callable[[], None] = lambda: None
        self.hurry: Callable[[], None] = lambda: None
        # Likewise: whether what comes now may be written at once; and called when that was done.
        self.is_free: Callable[[], bool] = lambda: False
        self.written_at_once: Callable[[], None] = lambda: None
        # Callbacks that gather writes until the last moment, and submit them when called.
        self._gatherers: list[Callable[[], None]] = []
        self._gathering = False
        self.expects_more = False
        # The group that gathers now is so large that the loop should not write it.
        self.is_large = False
        # There are operations that are not ready, among those that wait or are held.
        self._has_unready = False

    def write_aside(self) -> None:
        self.is_large = True

    @property
    def depth(self) -> int:
        writing = 0 if self._under_way is None else len(self._under_way.ops)
        in_memory = len(self._gatherers) + len(self.waiting) + len(self._held)
        return in_memory + writing + len(self._unsynced) + len(self._syncing)

    @property
    def wants_flush(self) -> bool:
        return bool(self.waiting or self._gatherers)

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
        self.require_room(1)
        self._has_unready |= not op.is_ready
        self.submit_checked(op)

    def submit_checked(self, op: Op) -> None:
        """For callers that have asked for room already, with an operation that is ready."""
        waiting = self.waiting
        waiting.append(op)
        if len(waiting) == 1 and not self._gathering:
            self.wake()

    def before_flush(self, gatherer: Callable[[], None], *, expects_more: bool = False) -> None:
        """Call this once, when the next flush begins; whatever it submits is part of that flush.

        `expects_more`: many are about to write, and a moment's wait would bring most of them together.
        """
        self._gatherers.append(gatherer)
        self.expects_more = expects_more
        # One that comes while others are asked is too late for this flush, whatever that one writes.
        if len(self._gatherers) == 1 and (self._gathering or not self.waiting):
            self.wake()

    def commit_now(self, gatherer: Callable[[], None]) -> None:
        """The same, for one that is not to wait until others have come."""
        self._gatherers.append(gatherer)
        self.hurry()

    def flush(self) -> None:
        """Hand every waiting frame to the operating system, then apply what needs no sync."""
        if self._under_way is not None:
            self.settle()
        ops = self._take()
        if not ops:
            return
        started = time.perf_counter()
        before = self._journal.position
        try:
            self._journal.write(_buffers(ops))
        except (OSError, MemoryError) as error:
            ops = self._rescue(error, ops)
            if not ops:
                return
        self._witness.acked(self._journal.position)
        self._written(ops, self._journal.position - before, started)

    def _take(self) -> list[Op]:
        """All that is to be written now."""
        if self._gatherers:
            gatherers, self._gatherers = self._gatherers, []
            self.expects_more = False
            self._gathering = True
            try:
                for gatherer in gatherers:
                    gatherer()
            finally:
                self._gathering = False
        ops, self.waiting = self.waiting, []
        if self._has_unready:
            ops = self._hold_back(ops)
        self.is_large = False
        self.group += 1
        if len(ops) > self.counters.queue_depth_peak:
            self.counters.queue_depth_peak = len(ops)
        return ops

    # --- what is not ready ------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def held_topics(self) -> set[Topic]:
        return self._held_topics

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
        self.applying = True
        try:
            for op in ops:
                op.wal_ms = wal_ms
                if op.sync or ((self._unsynced or self._syncing) and self._must_wait(op)):
                    self._hold(op)
                else:
                    op.apply()
        except (OSError, MemoryError) as error:
            self._latch(error, doubtful=_from(ops, op))
        finally:
            self.applying = False

    # --- written at once --------------------------------------------------------------------------------

    def takes_at_once(self) -> bool:
        """Whether nothing is in the way: what comes now may be written as it comes, and take effect."""
        is_engaged = self.waiting or self._gatherers or self._held or self._under_way or self.applying
        return not (is_engaged or self.refusal or self.is_large) and self.is_free()

    def show(self, op: Op) -> None:
        """Such an operation, which the journal has got, takes effect."""
        self._witness.acked(self._journal.position)
        self.applying = True
        try:
            op.apply()
        except (OSError, MemoryError) as error:
            self._latch(error, doubtful=[op])
        finally:
            self.applying = False

    def await_sync(self, op: Op) -> None:
        """The same for one that waits for a sync."""
        self._witness.acked(self._journal.position)
        self._hold(op)

    def rescue(self, error: BaseException, ops: list[Op]) -> None:
        """The journal has not taken them."""
        before, started = self._journal.position, time.perf_counter()
        ops = self._rescue(error, ops)
        if ops:
            self._witness.acked(self._journal.position)
            self._written(ops, self._journal.position - before, started)

    # --- writing on another thread ----------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        return self._under_way is not None

    def begin_write(self) -> GroupWrite | None:
        """Take every waiting frame; the caller has it run, and then calls `finish_write`."""
        ops = self._take()
        if not ops:
            return None
        self._under_way = GroupWrite(ops, self._journal.begin_write(_buffers(ops)))
        return self._under_way

    def finish_write(self, write: GroupWrite) -> None:
        # Otherwise a reader or a rotation could not wait, and has settled it.
        if write is self._under_way:
            self.settle()

    def settle(self) -> None:
        """Wait for the group that is under way, and let it take effect."""
        write = self._under_way
        if write is None or not self.land():
            return
        self._under_way = None
        self._written(write.ops, write.written, write.started)

    def land(self) -> bool:
        """Wait until the group that is under way is in the journal, if there is one; False if that failed."""
        write = self._under_way
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

    def note(self, buffers: list[bytes]) -> bool:
        """Journal, ahead of the answer, what the operation that is being applied has brought about.

        False when it could not be written.
        """
        # Only into the journal: its operations take effect when those of the group before have done so.
        if self.is_stuck or not self.land():
            return False
        try:
            self._journal.write(buffers)
        except OSError as error:
            if not self._rescue(error, [CallbackOp(buffers, None, _ignore, _ignore, sync=False)]):
                return False
        self._witness.acked(self._journal.position)
        return True

    def note_synced(self, buffers: list[bytes]) -> bool:
        """The same, and on disk when it returns. Nothing that waits takes effect by it."""
        if not self.note(buffers):
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
        self._unsynced.append(op)
        for topic in op.topics:
            topic.pending_sync += 1

    @staticmethod
    def _unhold(op: Op) -> None:
        for topic in op.topics:
            topic.pending_sync -= 1

    @property
    def wants_sync(self) -> bool:
        return bool(self._unsynced)

    @property
    def writers_waiting(self) -> int:
        """For the next sync."""
        return sum([op.writers for op in self._unsynced])

    @property
    def writers_syncing(self) -> int:
        """For the one that is under way."""
        return sum([op.writers for op in self._syncing])

    def begin_sync(self) -> SyncTicket:
        """Take everything that waits for the disk; later arrivals gather for the next sync."""
        self._syncing, self._unsynced = self._unsynced, []
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
        except (OSError, MemoryError) as error:
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
        ops, self._syncing, self._unsynced = [*self._syncing, *self._unsynced], [], []
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


def _buffers(ops: list[Op]) -> list[bytes]:
    return ops[0].buffers if len(ops) == 1 else [buffer for op in ops for buffer in op.buffers]


def _ignore(_: object) -> None:
    return None

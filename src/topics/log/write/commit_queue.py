"""The commit queue: operations wait here until the journal has them, then take effect in order.

    submit ─▶ waiting ─▶ flush (one vectored write for all) ─▶ apply
                                   └─ class fsync: ─▶ unsynced ─▶ one sync for all ─▶ apply

The write happens at once (`flush`), or on a thread of the commit loop (`begin_write` and `finish_write`):
file systems make a writer wait now and then, and a loop that waits serves no client. One group is under way
at a time; what has to be in the journal meanwhile waits for it.

An operation of a topic never overtakes an earlier one of the same topic: behind an operation that waits for
a sync, later ones wait too. A failed write or sync is final: everything not yet applied fails, and the log
takes no more writes until it is restarted.
"""

import time
from collections.abc import Callable
from threading import Event

from topics.log.write.operation import Op
from topics.storage import Journal, PendingWrite, SyncTicket, Witness
from topics.values import ApiError, Histogram, WritesOff

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


class GroupWrite:
    """A group of operations on its way to the operating system; `run` may happen on another thread."""

    __slots__ = ("_over", "_write", "error", "has_landed", "ops", "started", "written")

    def __init__(self, ops: list[Op], write: PendingWrite) -> None:
        self.ops = ops
        self._write = write
        self._over = Event()
        self.started = time.perf_counter()
        self.written = 0
        self.error: Exception | None = None
        # The journal has it; its operations may still have to take effect.
        self.has_landed = False

    def run(self) -> None:
        try:
            self.written = self._write.run()
        except Exception as error:
            self.error = error
        finally:
            self._over.set()

    def wait(self) -> None:
        self._over.wait()


class CommitQueue:
    def __init__(self, journal: Journal, witness: Witness, counters: Counters) -> None:
        self._journal = journal
        self._witness = witness
        self.waiting: list[Op] = []
        self._unsynced: list[Op] = []
        self._syncing: list[Op] = []
        self._sync_started = 0.0
        self._under_way: GroupWrite | None = None
        # Number of the group that gathers now.
        self.group = 1
        self.counters = counters
        # What every write is answered from now on, and why.
        self.failure: ApiError | None = None
        self.off: WritesOff | None = None
        # Operations are taking effect right now: a callback must not flush, only submit.
        self.applying = False
        # Set by the commit loop: called when there is something to flush or to sync.
        self.wake: Callable[[], None] = lambda: None
        # Callbacks that gather writes until the last moment, and submit them when called.
        self._gatherers: list[Callable[[], None]] = []
        self._gathering = False
        self.expects_more = False

    @property
    def depth(self) -> int:
        writing = 0 if self._under_way is None else len(self._under_way.ops)
        return len(self._gatherers) + len(self.waiting) + writing + len(self._unsynced) + len(self._syncing)

    @property
    def wants_flush(self) -> bool:
        return bool(self.waiting or self._gatherers)

    def require_room(self, ops: int) -> None:
        """Raises when that many operations could not be submitted now."""
        if self.failure is not None:
            raise self.failure
        if len(self.waiting) + ops > MAX_WAITING_OPS:
            self.counters.submit_full += 1
            raise ApiError("throttled", "the journal queue is full", {"retry_after_ms": 1000})

    def submit(self, op: Op) -> None:
        self.require_room(1)
        self.submit_checked(op)

    def submit_checked(self, op: Op) -> None:
        """For callers that have asked for room already."""
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
            self._latch(error, ops)
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
        self.group += 1
        if len(ops) > self.counters.queue_depth_peak:
            self.counters.queue_depth_peak = len(ops)
        return ops

    def _written(self, ops: list[Op], size: int, started: float) -> None:
        wal_ms = (time.perf_counter() - started) * 1000
        self.counters.batches += 1
        self.counters.bytes_written += size
        self.applying = True
        try:
            for op in ops:
                op.wal_ms = wal_ms
                if op.sync or self._must_wait(op):
                    self._hold(op)
                else:
                    op.apply()
        except (OSError, MemoryError) as error:
            self._latch(error, _from(ops, op))
        finally:
            self.applying = False

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
        if write.error is not None:
            self._latch(write.error, [])
            return False
        write.has_landed = True
        self._journal.finish_write(write.written)
        self._witness.acked(self._journal.position)
        return True

    # --- beside the queue -------------------------------------------------------------------------------

    def note(self, buffers: list[bytes]) -> None:
        """Journal, ahead of the answer, what the operation that is being applied has brought about."""
        # Only into the journal: its operations take effect when those of the group before have done so.
        if not self.land():
            return
        try:
            self._journal.write(buffers)
        except OSError as error:
            self._latch(error, [])
            return
        self._witness.acked(self._journal.position)

    def note_synced(self, buffers: list[bytes]) -> bool:
        """The same, and on disk when it returns. Nothing that waits takes effect by it."""
        self.note(buffers)
        if self.failure is None:
            try:
                self._journal.begin_sync().run()
            except OSError as error:
                self._latch(error, [])
        return self.failure is None

    @staticmethod
    def _must_wait(op: Op) -> bool:
        topic = op.topic
        if topic is not None and topic.pending_sync:
            return True
        return any(other.pending_sync for other in op.others)

    def _hold(self, op: Op) -> None:
        self._unsynced.append(op)
        if op.topic is not None:
            op.topic.pending_sync += 1
        for other in op.others:
            other.pending_sync += 1

    @staticmethod
    def _unhold(op: Op) -> None:
        if op.topic is not None:
            op.topic.pending_sync -= 1
        for other in op.others:
            other.pending_sync -= 1

    @property
    def wants_sync(self) -> bool:
        return bool(self._unsynced)

    def begin_sync(self) -> SyncTicket:
        """Take everything that waits for the disk; later arrivals gather for the next sync."""
        self._syncing, self._unsynced = self._unsynced, []
        self._sync_started = time.perf_counter()
        return self._journal.begin_sync()

    def finish_sync(self, ticket: SyncTicket, error: BaseException | None = None) -> None:
        ops, self._syncing = self._syncing, []
        if error is not None:
            self._latch(error, ops)
            return
        self._journal.finish_sync(ticket)
        self._witness.synced(self._journal.synced)
        elapsed = time.perf_counter() - self._sync_started
        self.counters.syncs_us.observe(int(elapsed * 1e6))
        self._apply_synced(ops, max(elapsed * 1000, 0.001))

    def _apply_synced(self, ops: list[Op], fsync_ms: float) -> None:
        self.applying = True
        try:
            for op in ops:
                self._unhold(op)
                op.fsync_ms = fsync_ms
                op.apply()
        except (OSError, MemoryError) as error:
            self._latch(error, _from(ops, op))
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
            self._latch(error, [])
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

    def give_up(self, cause: BaseException, *unfinished: Op) -> None:
        """The journal refused something outside an operation: the log takes no more writes."""
        self._latch(cause, [*unfinished])

    def end(self, off: WritesOff, why: str) -> None:
        """No write is acknowledged from now on, for a reason that is not a refusal of the journal's."""
        if self.failure is None:
            self._fail_all(off, f"{why}; writes are off until restart", [])

    def _latch(self, cause: BaseException, ops: list[Op]) -> None:
        """No retry: after a failed write or sync there is no telling what the disk holds."""
        why = str(cause) or type(cause).__name__
        message = f"storage refused the commit: {why}; writes are off until restart"
        self._fail_all(WritesOff.STORAGE_FAILED, message, ops)

    def _fail_all(self, off: WritesOff, message: str, ops: list[Op]) -> None:
        self.failure = ApiError("internal", message)
        # The first reason is what the operator has to see to.
        self.off = self.off or off
        writing: list[Op] = []
        if self._under_way is not None:
            self._under_way.wait()
            writing, self._under_way = self._under_way.ops, None
        failed = [*ops, *self._syncing, *self._unsynced, *writing, *self.waiting]
        self._syncing, self._unsynced, self.waiting = [], [], []
        topics = {op.topic for op in failed if op.topic is not None}
        topics.update(other for op in failed for other in op.others)
        for topic in topics:
            topic.take_back()
        for op in failed:
            op.fail(self.failure)


def _from(ops: list[Op], failed: Op) -> list[Op]:
    """The operation that could not take effect, and those after it: it had to read, and could not.

    The journal has them, and the next process applies them; until then no writer waits for an answer in vain.
    """
    return ops[next(at for at, op in enumerate(ops) if op is failed) :]


def _buffers(ops: list[Op]) -> list[bytes]:
    return ops[0].buffers if len(ops) == 1 else [buffer for op in ops for buffer in op.buffers]

"""Background upkeep: when the journal rotates, when checkpoints run, when memory and disk are released."""

import asyncio
import ctypes
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from topics.core import InvariantViolated
from topics.core.clock import until_next
from topics.core.measurements import Holds, TimedSteps
from topics.flow.checkpoints import Checkpoints
from topics.log import Checkpointer, CommitLoop, Engine
from topics.storage import enough_bytes, is_full

_MIB = 1024 * 1024
# Whoever uses much memory works for it, be it for writers or for readers: so much of processor time.
MUCH_WORK_S = 0.25
# Memory is given back so long after the last time that as much was done; under a load that does not rest, as
# often as this.
REST_S = 10.0
LONGEST_S = 60.0
# Parameters of glibc's mallopt, and our values. A page of records is some 200 KiB, a bulk write a few MiB; by
# default blocks of that size are handed back to the system when freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_FREE_BYTES = 1024 * _MIB
_LARGE_BYTES = 8 * _MIB


class MallocTrimmer:
    """Decides when freed memory goes back to the system.

    To return a page and ask for it again costs a writer of batches a tenth of its rate. So the allocator of a
    server keeps freed memory, and returns it when the server is quiet.
    """

    def __init__(self) -> None:
        # How much work had been done when it was last much.
        self._worked_s = 0.0
        # From when on it is time; at the latest then. Nothing is to be given back as long as they are None.
        self._due_s: float | None = None
        self._latest_s: float | None = None

    def is_due(self, now_s: float, worked_s: float) -> bool:
        """Whether it is time to give memory back; asked now and then.

        `worked_s`: all processor time of this process.
        """
        if worked_s - self._worked_s >= MUCH_WORK_S:
            self._worked_s, self._due_s = worked_s, now_s + REST_S
            self._latest_s = self._latest_s or now_s + LONGEST_S
        if self._due_s is None or self._latest_s is None or now_s < min(self._due_s, self._latest_s):
            return False
        self._due_s = self._latest_s = None
        return True


def keep_freed_blocks() -> None:
    """Tell the allocator that this process frees large blocks only to ask for the like again.

    Without effect where the C library is not glibc, and so is its counterpart.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def trim_malloc() -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


log = logging.getLogger("topics.upkeep")

TICK_S = 0.2
# Checkpoints may take at most this share of the time. Records that are written meanwhile stay in memory until
# the next one, so a small share would cost a busy server hundreds of megabytes. While there is a backlog to
# seal, checkpoints follow each other without rest.
CHECKPOINT_SHARE = 0.5

# The rest after an attempt to find room.
RECLAIM_REST_S = 10.0
# After this many syncs of at most this average size, the next journal file is preallocated.
MANY_SYNCS = 256
SMALL_SYNC_BYTES = 256 * 1024

# Surrounds a piece of work that shows in a trace.
Span = Callable[[str], AbstractContextManager[object]]


class Upkeep:
    def __init__(
        self, engine: Engine, commit: CommitLoop, checkpointer: Checkpointer, span: Span = nullcontext
    ) -> None:
        self._engine = engine
        self._commit = commit
        self.checkpoints = Checkpoints(engine, commit, checkpointer)
        self._span = span
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._seen_syncs, self._seen_position = engine.counters.fsyncs, engine.journal.position
        self._freed = MallocTrimmer()
        self.checkpoint_seconds = 0.0
        self.holds = Holds()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(TimedSteps(self._run(), self.holds))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(until_next(TICK_S, loop.time()))
            try:
                await self._turn()
            except OSError as error:
                if is_full(error) and self._engine.queue.refusals.failure is None:
                    self._engine.queue.refusals.note_full()
                else:
                    log.error("upkeep failed: %s; it will be tried again", error)
                await asyncio.sleep(1.0)
            except InvariantViolated as error:
                self._engine.queue.give_up(error)
            except Exception:  # without upkeep, memory and journal would only grow
                log.exception("upkeep failed; it will be tried again")
                await asyncio.sleep(1.0)

    async def _turn(self) -> None:
        engine = self._engine
        if engine.queue.refusals.failure is not None:
            return
        engine.rotate_if_full()
        await self._release_memory()
        if engine.writes_off is None and self._is_preallocation_due():
            await self._preallocate()
        now = time.monotonic()
        if engine.writes_off is not None:
            if now >= self._not_before:
                await self._reclaim()
        elif self.checkpoints.is_idle:
            await self._leave_journal()
        engine.clock_mark.extend(engine.now())
        engine.keys.sweep(engine.now())
        if (now >= self._not_before or self._commit.brake.is_on) and self.checkpoints.is_due:
            with self._span("checkpoint"):
                await self.checkpoints.run_due()
            took_s = time.monotonic() - now
            self.checkpoint_seconds += took_s
            self._not_before = time.monotonic() + max(0.5, took_s * (1 / CHECKPOINT_SHARE - 1))

    async def _reclaim(self) -> None:
        """The disk is full: release journal files, if writes can return by that.

        A journal file is begun when the last one is large. On a small disk, one file may hold most of the
        data, although its records are in segments or deleted.
        """
        engine = self._engine
        journal, reserve, needed = engine.journal, engine.reserve, engine.store.unsealed.bytes
        enough = enough_bytes(engine.fs.room(engine.dirs.root).size_bytes)
        gain = journal.retained_bytes() - needed
        # Removals write, too: they must not run out of the ballast file.
        is_worth_it = gain >= enough or (reserve.size < reserve.half and gain >= reserve.half)
        is_affordable = needed <= max(reserve.size - reserve.rest, 0)
        if not (is_worth_it and is_affordable) or journal.kept_from is not None:
            return
        self._not_before = time.monotonic() + RECLAIM_REST_S
        await self._leave_journal()

    async def _leave_journal(self) -> None:
        with self._span("checkpoint"):
            await self.checkpoints.leave_journal()

    def _is_preallocation_due(self) -> bool:
        """Whether syncs were many and small since the last call: metadata takes most of their time."""
        syncs, position = self._engine.counters.fsyncs, self._engine.journal.position
        count, size = syncs - self._seen_syncs, position - self._seen_position
        if count < MANY_SYNCS:
            return False
        self._seen_syncs, self._seen_position = syncs, position
        return size <= count * SMALL_SYNC_BYTES

    async def _preallocate(self) -> None:
        engine = self._engine
        engine.require_home(engine.dirs.journal)
        await asyncio.to_thread(engine.write_ahead)
        if engine.ahead.size and not engine.journal.is_ahead:
            engine.rotate()

    async def _release_memory(self) -> None:
        self.checkpoints.make_room()
        # While writes stall, writers wait for exactly this memory.
        if not self._commit.brake.is_on and self._freed.is_due(time.monotonic(), time.process_time()):
            await asyncio.to_thread(trim_malloc)

    async def stop(self) -> None:
        # Not during a pass: its thread would go on writing files beside the last checkpoint.
        async with self.checkpoints.exclusive:
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

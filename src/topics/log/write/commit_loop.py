"""Drives the commit queue from the event loop: one write per tick for all waiting frames, one sync for all.

Syncs never run on the loop. The kernel's asynchronous `fdsync` is used where it works, a thread elsewhere;
while one sync runs, the next group gathers behind it. Writes do run on it, because that is fastest, unless
a reader is to be served at once, or much is to be written: file systems make a writer wait for milliseconds
while they sync others.

This is the only module of the log that knows the event loop. It stands beside the queue because each write
goes from one to the other and back; the queue itself works without it, driven by hand.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from topics.core import MIB
from topics.log.engine import Engine
from topics.log.run import Unsealed
from topics.log.write.commit_queue import FLUSH_BYTES
from topics.log.write.refusals import GroupWrite
from topics.storage import KernelSyncs, SyncTicket

log = logging.getLogger("topics.commit")

# Unsynced journal is pushed out in steps of this size, so that no single sync has to carry gigabytes.
TRICKLE_BYTES = 8 * 1024 * 1024
# The brake is never on below this: a pass of sealing is worth its files only from some size on.
MIN_FREE_BYTES = 64 * 1024 * 1024
# It begins to work when this part of the budget is used.
FREE_SHARE = 0.75
# How fast memory may grow when the budget is used up; half-way there twice as fast, and so on.
FULL_BYTES_PER_S = 32 * 1024 * 1024
# No group waits longer than this for the sake of what was written before.
MAX_PAUSE_S = 1.0
# A group that has more bytes is written on a thread.
ASIDE_BYTES = MIB
# After a group with more requests than this, the next one gathers for a turn longer: a large group costs less
# than two small ones.
FEW_REQUESTS = 3


class Pressure(Protocol):
    """The governor, as far as the log has to know it. Read for every group, so these are plain attributes."""

    # How long a group may gather before it is written.
    commit_window_s: float


class Pacing(Protocol):
    """The pacer, likewise."""

    # Readers are being served that should not have to wait for a write.
    pacing: bool


class _Calm:
    commit_window_s = 0.0
    pacing = False


class Brake:
    """A writer that is faster than sealing waits for it, so that memory stays what it was meant to be.

    What is written stays in memory until a segment has it. As long as that leaves a quarter of the hot budget
    free, no write waits. Above it, each group of writes puts off the next one: by the longer, the more it has
    brought into memory, copies made by routers included, and the more has piled up. Writes gather meanwhile
    and are committed together; none is refused for it, and reads go on.
    """

    def __init__(self, unsealed: Unsealed, hot_bytes: int) -> None:
        self._unsealed = unsealed
        self._free_bytes = max(hot_bytes * FREE_SHARE, MIN_FREE_BYTES)
        self._counted_bytes = unsealed.bytes + unsealed.left_bytes

    @property
    def is_on(self) -> bool:
        return self._unsealed.bytes > self._free_bytes

    def pause_s(self) -> float:
        """Return how long the next group waits because of memory used since the last call; 0 for no wait."""
        before, unsealed = self._counted_bytes, self._unsealed
        # Bytes that have left since then were used as well.
        self._counted_bytes = unsealed.bytes + unsealed.left_bytes
        if unsealed.bytes <= self._free_bytes:
            return 0.0
        grown_bytes = self._counted_bytes - before
        excess = (unsealed.bytes / self._free_bytes - 1) * FREE_SHARE / (1 - FREE_SHARE)
        return min(max(grown_bytes * excess / FULL_BYTES_PER_S, 0.0), MAX_PAUSE_S)


class KernelSync:
    """The kernel's own syncs, the end of which arrives on a descriptor that the loop watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises `OSError` where there are none."""
        self._loop = loop
        self._syncs = KernelSyncs()
        loop.add_reader(self._syncs.fileno(), self._syncs.finish)

    def start(self, fd: int, done: Callable[[BaseException | None], None]) -> None:
        self._syncs.start(fd, done)

    def close(self) -> None:
        self._loop.remove_reader(self._syncs.fileno())
        self._syncs.close()


class CommitLoop:
    """Attach it to an engine and every submitted operation is committed in the next turn of the loop."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        pressure: Pressure | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._engine = engine
        self._pressure = pressure or _Calm()
        self._pacing = pacing or _Calm()
        self._writer = ThreadPoolExecutor(1, "journal")
        self.brake = Brake(engine.store.unsealed, engine.settings.hot_bytes)
        # Until then the brake holds the next group back, by the loop's clock.
        self._held_until = 0.0
        self._queue = engine.queue
        self._effects = engine.queue.effects
        self._journal = engine.journal
        self._loop = loop
        self._busy = False
        self._paused = 0
        self._quiet: list[asyncio.Future[None]] = []
        self._kernel = _kernel_sync(loop)
        self._queue.wake_with(self._schedule)
        if self._queue.wants_flush:
            self._schedule()

    def _schedule(self) -> None:
        window_s = self._pressure.commit_window_s
        if self._held_until:
            window_s = max(window_s, self._held_until - self._loop.time())
        if window_s > 0:
            self._loop.call_later(window_s, self._tick)
        elif self._queue.last_requests > FEW_REQUESTS:
            self._loop.call_soon(self._loop.call_soon, self._tick)
        else:
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Write what was gathered, and begin a sync for what waits for one."""
        queue, journal = self._queue, self._journal
        # A write or a sync that is under way schedules the next tick when it is over.
        if self._paused or queue.under_way is not None:
            return
        left_s = self.held_s() if self._held_until else 0.0
        if left_s:
            self._loop.call_later(left_s, self._tick)
        else:
            queue.assign_pending(FLUSH_BYTES)
            if self._pacing.pacing or queue.waiting_bytes > ASIDE_BYTES:
                self._write_aside()
            else:
                queue.flush()
                if pause_s := self.brake.pause_s():
                    self._held_until = self._loop.time() + pause_s
        is_much = journal.position - journal.synced > TRICKLE_BYTES and queue.refusals.failure is None
        if not self._busy and (self._effects.unsynced or is_much):
            self._start_sync()

    def held_s(self) -> float:
        """For how long the brake holds back what is to come into memory; 0 when it does not."""
        if not self._held_until:
            return 0.0
        left_s = self._held_until - self._loop.time()
        if left_s <= 0 or not self.brake.is_on:
            self._held_until = 0.0
            return 0.0
        return left_s

    def hold_next(self) -> None:
        """The brake makes the next group wait for what came into memory since the last one."""
        pause_s = self.brake.pause_s()
        if pause_s:
            self._held_until = self._loop.time() + pause_s

    def give_up(self, cause: BaseException) -> None:
        """End writing: the log contradicts itself, or the disk does not take it."""
        self._queue.give_up(cause)

    def _write_aside(self) -> None:
        write = self._queue.begin_write()
        if write is None:
            return

        def run() -> None:
            write.run()
            self._loop.call_soon_threadsafe(self._finish_write, write)

        self._writer.submit(run)

    def _finish_write(self, write: GroupWrite) -> None:
        self._queue.finish_write(write)
        self.hold_next()
        # Even if nothing waits by now: a tick during the write did nothing, and the queue counts on it.
        self._tick()

    def _start_sync(self) -> None:
        self._busy = True
        ticket = self._effects.begin_sync()
        journal = self._journal
        if self._kernel is not None and journal.only_current_unsynced:
            try:
                self._kernel.start(journal.current_file().fileno(), lambda error: self._finish(ticket, error))
                return
            except OSError as error:
                log.warning("kernel sync refused (%s); using a thread from now on", error)
                self._kernel.close()
                self._kernel = None
        self._sync_in_thread(ticket)

    def _sync_in_thread(self, ticket: SyncTicket) -> None:
        future = self._loop.run_in_executor(None, ticket.run)
        future.add_done_callback(lambda done: self._finish(ticket, done.exception()))

    def _finish(self, ticket: SyncTicket, error: BaseException | None) -> None:
        self._busy = False
        if isinstance(error, OSError) and error.errno in (errno.EINVAL, errno.ENOSYS) and self._kernel:
            # No asynchronous sync for this file system: nothing was attempted, so a thread may try.
            self._kernel.close()
            self._kernel = None
            self._busy = True
            self._sync_in_thread(ticket)
            return
        self._effects.finish_sync(ticket, error)
        if self._effects.unsynced or self._queue.wants_flush:
            if self._paused:
                self._start_sync() if self._effects.unsynced else self._announce_quiet()
            else:
                self._schedule()
        else:
            self._announce_quiet()

    # --- barrier ----------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Stop handing frames to the journal and wait until everything in it has been applied."""
        self._paused += 1
        self._queue.settle()
        # Again and again: a reader that brings a derived topic up to date may have written meanwhile.
        while self._busy or self._effects.unsynced:
            if not self._busy:
                self._start_sync()
            quiet = self._loop.create_future()
            self._quiet.append(quiet)
            await quiet

    def resume(self) -> None:
        self._paused -= 1
        if not self._paused:
            # Even if nothing waits by now: a tick during the pause did nothing, and the queue counts on it.
            self._schedule()

    def _announce_quiet(self) -> None:
        waiting, self._quiet = self._quiet, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def drain(self) -> None:
        """Commit everything submitted so far, as far as it is ready."""
        while self._queue.depth > self._queue.held:
            self._held_until = 0.0
            self._tick()
            await asyncio.sleep(0.001)

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        self._queue.wake_with(lambda: None)
        self._queue.settle()
        self._writer.shutdown()


def _kernel_sync(loop: asyncio.AbstractEventLoop) -> KernelSync | None:
    try:
        return KernelSync(loop)
    except OSError:
        return None

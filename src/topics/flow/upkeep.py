"""Background upkeep: journal rotation, clock marks, checkpoints, and the move to the second tier."""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress

from topics.flow.malloc_trimmer import MallocTrimmer, trim_malloc
from topics.log import Checkpointer, CommitLoop, Engine, SegmentPlan
from topics.storage import enough_bytes, is_full, read_file
from topics.storage.segment import file_name
from topics.values import InvariantViolated
from topics.values.clock import until_next
from topics.values.holding import Holds, TimedSteps

STEP_TOPICS = 4096


class Tiers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def due(self) -> list[int]:
        """Segments that no topic counts among its newest. Topics are asked a few at a time."""
        store, settings = self._engine.store, self._engine.settings
        if store.cold_dir is None:
            return []
        keep: set[int] = set()
        candidates: set[int] = set()
        for at, topic in enumerate([*self._engine.by_id.values()]):
            if at % STEP_TOPICS == STEP_TOPICS - 1:
                await asyncio.sleep(0)
            kept_bytes = kept = 0
            for run in reversed(topic.runs):
                if run.sealed is None:
                    continue
                kept_bytes += run.live_bytes
                kept += 1
                recent = kept <= settings.hot_retain_segments or kept_bytes <= settings.hot_retain_bytes
                (keep if recent else candidates).add(run.sealed.segment)
        assert store.cold_files is not None
        movable = candidates - keep - store.cold - store.cold_files.refused
        return [n for n in sorted(movable) if not store.is_pinned(n)]

    def copy(self, number: int) -> bool:
        """Any thread: sealed files change only by delete flags, and those are flipped by the same upkeep.

        False where the file has to stay: something else has its name there.
        """
        store = self._engine.store
        assert store.cold_files is not None
        self._engine.require_home(store.cold_files.path(number))
        copied = store.cold_files.put(number, read_file(store.fs, store.path(number)))
        if not copied:
            log.warning("segment %d stays where it is: see %s", number, store.cold_files.path(number))
        return copied

    def switch(self, number: int) -> None:
        """On the loop: readers find the copy from now on."""
        store = self._engine.store
        if store.is_pinned(number):
            return  # pinned while it was copied; the original counts, and will be copied again
        original = os.path.join(store.hot_dir, file_name(number))
        self._engine.require_home(original)
        store.close_file(number)
        store.cold.add(number)
        store.fs.remove(original)


log = logging.getLogger("topics.upkeep")

TICK_S = 0.2
# Checkpoints may take at most this share of the time. What is written meanwhile stays in memory until the
# next one, so a small share would cost a busy server hundreds of megabytes; while there is a backlog to seal,
# they follow each other without rest.
CHECKPOINT_SHARE = 0.5

# How soon room is looked for again, where it was not found.
RECLAIM_REST_S = 10.0
# With so many syncs, of so much on average, it is worth the while to write the next journal file ahead.
MANY_SYNCS = 256
SMALL_SYNC_BYTES = 256 * 1024
# Topics that go on changing are not followed for ever: what is left is captured while writes wait.
MAX_CAPTURE_STEPS = 1000

# Surrounds a piece of work that shows in a trace.
Span = Callable[[str], AbstractContextManager[object]]


class Upkeep:
    def __init__(
        self, engine: Engine, commit: CommitLoop, checkpointer: Checkpointer, span: Span = nullcontext
    ) -> None:
        self._engine = engine
        self._commit = commit
        self._checkpointer = checkpointer
        self._tiers = Tiers(engine)
        self._span = span
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._seen_syncs, self._seen_position = engine.counters.fsyncs, engine.journal.position
        self._freed = MallocTrimmer()
        # Held while files are sealed, flipped or moved: by checkpoints and purges.
        self.exclusive = asyncio.Lock()
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
                if is_full(error) and self._engine.queue.failure is None:
                    self._engine.queue.note_full()
                else:
                    log.error("upkeep failed: %s; it will be tried again", error)
                await asyncio.sleep(1.0)
            except InvariantViolated as error:
                self._engine.queue.give_up(error)
            except Exception:  # whatever it was: without upkeep, memory and journal would only grow
                log.exception("upkeep failed; it will be tried again")
                await asyncio.sleep(1.0)

    async def _turn(self) -> None:
        engine = self._engine
        if engine.queue.failure is not None:
            return
        engine.rotate_if_full()
        await self._make_room_in_memory()
        if engine.writes_off is None and self._is_worth_writing_ahead():
            await self._write_ahead()
        now = time.monotonic()
        if engine.writes_off is not None:
            if now >= self._not_before:
                await self._reclaim()
        elif self._checkpointer.is_idle():
            await self._leave_journal()
        engine.clock_mark.extend(engine.now())
        engine.keys.sweep(engine.now())
        if (now >= self._not_before or self._commit.brake.is_on) and self._checkpointer.is_due():
            with self._span("checkpoint"):
                await self._alone()
                while self._checkpointer.sealer.is_behind and engine.queue.failure is None:
                    await self._alone()
            took_s = time.monotonic() - now
            self.checkpoint_seconds += took_s
            self._not_before = time.monotonic() + max(0.5, took_s * (1 / CHECKPOINT_SHARE - 1))

    async def _reclaim(self) -> None:
        """The disk is full: let go of journal that is hardly needed, if writes can return by that.

        A journal file is begun when the last one is large. On a small disk, most of what there is may lie in
        one whose records are in segments by now, or deleted.
        """
        engine = self._engine
        journal, reserve, needed = engine.journal, engine.reserve, engine.store.unsealed.bytes
        enough = enough_bytes(engine.fs.room(engine.dirs.root).size_bytes)
        gain = journal.retained_bytes() - needed
        # What removals have written meanwhile is worth it as well, before nothing is left for them.
        is_worth_it = gain >= enough or (reserve.size < reserve.half and gain >= reserve.half)
        is_affordable = needed <= max(reserve.size - reserve.rest, 0)
        if not (is_worth_it and is_affordable) or journal.kept_from is not None:
            return
        self._not_before = time.monotonic() + RECLAIM_REST_S
        await self._leave_journal()

    async def _leave_journal(self) -> None:
        """Bring what only the journal has into segments, so that its files can go."""
        with self._span("checkpoint"):
            self._engine.rotate()
            # Two: recovery may start from either of the last two snapshots.
            for _ in range(2):
                async with self.exclusive:
                    await self.checkpoint(upto=self._engine.journal.position)

    def _is_worth_writing_ahead(self) -> bool:
        """Syncs have been many since this was last asked, and small: metadata takes most of their time."""
        syncs, position = self._engine.counters.fsyncs, self._engine.journal.position
        count, size = syncs - self._seen_syncs, position - self._seen_position
        if count < MANY_SYNCS:
            return False
        self._seen_syncs, self._seen_position = syncs, position
        return size <= count * SMALL_SYNC_BYTES

    async def _write_ahead(self) -> None:
        engine = self._engine
        engine.require_home(engine.dirs.journal)
        await asyncio.to_thread(engine.write_ahead)
        if engine.ahead.size and not engine.journal.is_ahead:
            engine.rotate()

    async def _make_room_in_memory(self) -> None:
        self._checkpointer.sealer.make_room()
        # Behind the brake, writers are waiting for just that memory.
        if not self._commit.brake.is_on and self._freed.is_due(time.monotonic(), time.process_time()):
            await asyncio.to_thread(trim_malloc)

    async def _alone(self) -> None:
        """One pass; purges and backups, which wait for files to be at rest, come in between two of them."""
        async with self.exclusive:
            await self.checkpoint()

    async def checkpoint(self, *, upto: int = 0) -> None:
        """Seal, snapshot and release, with all file writing off the loop.

        Runs that depend on the journal below `upto` are sealed too, as many as one pass takes.
        """
        checkpointer, sealer = self._checkpointer, self._checkpointer.sealer
        self._engine.rotate_if_full()
        if upto:
            await self._settle(upto)
        plan: list[SegmentPlan] = []
        is_short_of_room = False
        try:
            await _with_breaks(sealer.plan_in_steps(plan, upto=upto))
            for file in plan:
                if not await asyncio.to_thread(sealer.write, file, is_asked_for=bool(upto)):
                    is_short_of_room = True
                    break
                await _with_breaks(sealer.adopt_in_steps(file))
        finally:
            sealer.abandon(plan)
        for _ in range(MAX_CAPTURE_STEPS):
            if not checkpointer.capture_step():
                break
            await asyncio.sleep(0)
        await self._commit.pause()
        try:
            if self._engine.queue.failure is not None:
                return
            body, replay_from = checkpointer.capture()
        finally:
            self._commit.resume()
        await asyncio.to_thread(checkpointer.write_snapshot, body)
        gone = checkpointer.release(replay_from)
        if gone:
            await asyncio.to_thread(checkpointer.remove, gone)
        await self._move_cold()
        if upto and is_short_of_room:
            raise OSError(errno.ENOSPC, "no room for the records that have to leave the journal")

    async def _move_cold(self) -> None:
        """A second tier without room is no reason to stop anything: segments stay where they are."""
        for number in await self._tiers.due():
            try:
                is_copied = await asyncio.to_thread(self._tiers.copy, number)
            except OSError as error:
                if not is_full(error):
                    raise
                log.error("the cold directory has no room: %s; segments stay where they are", error)
                return
            if is_copied:
                self._tiers.switch(number)

    async def _settle(self, upto: int) -> None:
        """Let runs from below `upto` come to rest: one with records on their way to disk is not sealed."""
        growing = [
            run
            for run, topic in self._engine.store.unsealed.runs.items()
            if run.start_position < upto and run.last > topic.head and not run.frozen
        ]
        for run in growing:
            run.freeze()
        try:
            await self._commit.pause()
            try:
                await self._sync_journal()
            finally:
                self._commit.resume()
        finally:
            for run in growing:
                run.thaw()

    async def _sync_journal(self) -> None:
        """While nothing is committed. What no sync has covered stays open, and what is open takes room."""
        ticket = self._engine.journal.begin_sync()
        try:
            await asyncio.to_thread(ticket.run)
        except OSError as error:
            self._engine.queue.give_up(error)
        else:
            self._engine.queue.effects.note_sync(ticket)

    async def stop(self) -> None:
        # Not in the middle of a pass: its thread would go on writing files beside the last checkpoint.
        async with self.exclusive:
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task


async def _with_breaks(steps: Iterator[None]) -> None:
    """Do the work a step at a time; whatever else waits for the loop goes in between."""
    for _ in steps:
        await asyncio.sleep(0)

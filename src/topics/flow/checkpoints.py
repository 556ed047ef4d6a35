"""Checkpoints: seal runs, write a snapshot, release journal files, move old segments to the cold directory.

All writing of files happens on threads.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Iterator

from topics.log import Checkpointer, CommitLoop, Engine, SegmentPlan
from topics.storage import is_full, read_file
from topics.storage.segment import file_name

log = logging.getLogger("topics.upkeep")

# So many topics are looked at before other work has its turn.
STEP_TOPICS = 4096


class ColdTier:
    """The second tier: old segments move to the cold directory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def due(self) -> list[int]:
        """Return the segments that no topic counts among its newest. It looks at a few topics at a time."""
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
        """Copy the file to the cold directory; False if another file has its name there.

        Runs on any thread: sealed files change only by delete flags, which the same upkeep flips.
        """
        store = self._engine.store
        assert store.cold_files is not None
        self._engine.require_home(store.cold_files.path(number))
        copied = store.cold_files.put(number, read_file(store.fs, store.path(number)))
        if not copied:
            log.warning("segment %d stays where it is: see %s", number, store.cold_files.path(number))
        return copied

    def switch(self, number: int) -> None:
        """Let readers use the copy from now on, and remove the original. Runs on the loop."""
        store = self._engine.store
        if store.is_pinned(number):
            return  # It was pinned during the copy: the original stays, and is copied again later.
        original = os.path.join(store.hot_dir, file_name(number))
        self._engine.require_home(original)
        store.close_file(number)
        store.cold.add(number)
        store.fs.remove(original)

    async def move_due(self) -> None:
        """Move the segments that are due. If the cold directory has no room, they stay where they are."""
        for number in await self.due():
            try:
                is_copied = await asyncio.to_thread(self.copy, number)
            except OSError as error:
                if not is_full(error):
                    raise
                log.error("the cold directory has no room: %s; segments stay where they are", error)
                return
            if is_copied:
                self.switch(number)


# Topics that go on changing are not followed for ever: the rest is captured while writes wait.
MAX_CAPTURE_STEPS = 1000


class Checkpoints:
    """The passes of the checkpointer, one at a time."""

    def __init__(self, engine: Engine, commit: CommitLoop, checkpointer: Checkpointer) -> None:
        self._engine = engine
        self._commit = commit
        self._checkpointer = checkpointer
        self._cold = ColdTier(engine)
        # Held while files are sealed, flipped or moved: by passes, purges and backups.
        self.exclusive = asyncio.Lock()

    @property
    def is_due(self) -> bool:
        return self._checkpointer.is_due()

    @property
    def is_idle(self) -> bool:
        return self._checkpointer.is_idle()

    def make_room(self) -> None:
        """Release memory that only sealed records take."""
        self._checkpointer.sealer.make_room()

    async def run_due(self) -> None:
        """Run passes until there is no backlog to seal."""
        await self._alone()
        while self._checkpointer.sealer.is_behind and self._engine.queue.refusals.failure is None:
            await self._alone()

    async def leave_journal(self) -> None:
        """Bring the records that only the journal has into segments, so that its files can go."""
        self._engine.rotate()
        # Two: recovery may start from either of the last two snapshots.
        for _ in range(2):
            async with self.exclusive:
                await self.run(upto=self._engine.journal.position)

    async def _alone(self) -> None:
        """Run one pass. Purges and backups, which wait until no file changes, come between two passes."""
        async with self.exclusive:
            await self.run()

    async def run(self, *, upto: int = 0) -> None:
        """Seal, write a snapshot and release journal files.

        Runs that depend on the journal below `upto` are sealed too, as many as one pass takes.
        """
        checkpointer, sealer = self._checkpointer, self._checkpointer.sealer
        self._engine.rotate_if_full()
        if upto:
            await self._commit_runs(upto)
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
            if self._engine.queue.refusals.failure is not None:
                return
            body, replay_from = checkpointer.capture()
        finally:
            self._commit.resume()
        await asyncio.to_thread(checkpointer.write_snapshot, body)
        gone = checkpointer.release(replay_from)
        if gone:
            await asyncio.to_thread(checkpointer.remove, gone)
        await self._cold.move_due()
        if upto and is_short_of_room:
            raise OSError(errno.ENOSPC, "no room for the records that have to leave the journal")

    async def _commit_runs(self, upto: int) -> None:
        """Commit the records of runs below `upto`: a run with uncommitted records is not sealed."""
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
        """Sync while nothing is committed: journal files stay open until a sync, and open files take room."""
        ticket = self._engine.journal.begin_sync()
        try:
            await asyncio.to_thread(ticket.run)
        except OSError as error:
            self._engine.queue.give_up(error)
        else:
            self._engine.queue.effects.note_sync(ticket)


async def _with_breaks(steps: Iterator[None]) -> None:
    """Do the work a step at a time; other work of the loop goes in between."""
    for _ in steps:
        await asyncio.sleep(0)

"""Checkpoints: seal runs, write a snapshot and release journal files, with all file writing off the loop."""

import asyncio
import errno
from collections.abc import Iterator

from topics.flow.cold_tier import ColdTier
from topics.log import Checkpointer, CommitLoop, Engine, SegmentPlan

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
        while self._checkpointer.sealer.is_behind and self._engine.queue.failure is None:
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
            if self._engine.queue.failure is not None:
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

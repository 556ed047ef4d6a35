"""Purges: afterwards the disk holds nothing of what was deleted before they began.

    a new journal file begins ─▶ what lies in older ones is sealed ─▶ segments are written anew
                              ─▶ two snapshots ─▶ old journal and old segments go

The journal is shared by all topics, so all of it goes, whichever topics were named. Copies that routers made
are sealed with everything else before the records they were made from disappear. Reads and writes go on.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from topics.core import limit_reached
from topics.flow.checkpoints import Checkpoints
from topics.log import Engine
from topics.ops.purge_segments import STEP_TOPICS, FilePlan, SegmentPurge
from topics.storage import is_full

log = logging.getLogger("topics.purge")

# Finished ones are remembered for operators who ask how it went.
REMEMBERED = 100
MAX_WAITING = 100
# How often to look whether a reader still holds a file that has to go.
HELD_POLL_S = 0.2

# Recovery may start from either of two.
SNAPSHOTS = 2

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
SEALING, REWRITING, RELEASING = "sealing", "rewriting", "releasing"


@dataclass(slots=True)
class Purge:
    """One purge, and how far it has come."""

    id: str
    topics: tuple[str, ...] | None
    started_ms: int
    state: str = WAITING
    phase: str = SEALING
    files: int = 0
    files_examined: int = 0
    files_rewritten: int = 0
    records: int = 0
    segment_bytes: int = 0
    journal_bytes: int = 0
    # Files with something to be removed that a reader or a backup holds at the moment.
    files_held: int = 0
    finished_ms: int | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, FAILED)

    def shown(self) -> dict[str, Any]:
        """As it is told to an operator."""
        fields = asdict(self)
        return {"purge": fields.pop("id"), **fields}


class Purges:
    def __init__(self, engine: Engine, checkpoints: Checkpoints) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._known: OrderedDict[str, Purge] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def start(self, topics: Collection[str] | None = None) -> Purge:
        """Begin behind those that are under way: each covers what was deleted before it began."""
        if len(self._tasks) >= MAX_WAITING:
            raise limit_reached("max_purges", MAX_WAITING)
        if self._engine.queue.refusals.failure is not None:
            raise self._engine.queue.refusals.failure.anew()
        names = None if topics is None else tuple(topics)
        purge = Purge(secrets.token_hex(8), names, self._engine.now())
        self._known[purge.id] = purge
        while len(self._known) > REMEMBERED + MAX_WAITING:
            self._known.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self.run(purge))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return purge

    def find(self, purge_id: str) -> Purge | None:
        return self._known.get(purge_id)

    async def stop(self) -> None:
        """The server stops: what is not finished has to be asked for again."""
        for task in tuple(self._tasks):
            # Not in the middle of a step, whose thread would go on.
            async with self._checkpoints.exclusive:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, purge: Purge) -> None:
        try:
            async with self._turn:
                purge.state = RUNNING
                await self._run(purge)
            purge.state = DONE
            log.info(
                "purge %s is done: %d records in %d files", purge.id, purge.records, purge.files_rewritten
            )
        except asyncio.CancelledError:
            self._give_up(purge, "the server was stopped")
            raise
        except Exception as error:
            # Of a full disk it is known where it comes from, and what helps.
            log.error("purge %s failed: %s", purge.id, error, exc_info=not is_full(error))
            self._give_up(purge, str(error))
        finally:
            purge.finished_ms = self._engine.now()

    @staticmethod
    def _give_up(purge: Purge, why: str) -> None:
        purge.state, purge.error = FAILED, why

    async def _run(self, purge: Purge) -> None:
        engine = self._engine
        oldest = engine.journal.files[0].base
        await self._expire()
        # Everything committed by now lies below this position, in files that end there.
        async with self._checkpoints.exclusive:
            engine.rotate()
        line = engine.journal.position
        await self._checkpoint(line)
        while engine.store.unsealed.oldest_position(line) < line:
            await self._checkpoint(line)
        async with self._checkpoints.exclusive:
            segments = SegmentPurge(engine, purge.topics)
            for _ in segments.plan_in_steps():
                await asyncio.sleep(0)
        purge.phase, purge.files = REWRITING, len(segments.files)
        for file in segments.files:
            await self._purge_somehow(segments, file, purge, line)
        purge.phase = RELEASING
        await self._release(segments, line, purge)
        purge.journal_bytes = line - oldest
        async with self._checkpoints.exclusive:
            await asyncio.to_thread(segments.sweep)

    async def _expire(self) -> None:
        """What is too old by now is gone, whether or not a reader has looked since."""
        for at, topic in enumerate(list(self._engine.by_id.values()), 1):
            if not topic.dropped:
                self._engine.refresh(topic)
            if at % STEP_TOPICS == 0:
                await asyncio.sleep(0)

    async def _checkpoint(self, line: int) -> None:
        async with self._checkpoints.exclusive:
            await self._checkpoints.run(upto=line)
        if self._engine.queue.refusals.failure is not None:
            raise self._engine.queue.refusals.failure.anew()

    async def _purge_somehow(self, segments: SegmentPurge, file: FilePlan, purge: Purge, line: int) -> None:
        try:
            await self._purge_file(segments, file, purge)
        except OSError as error:
            if not is_full(error):
                raise
            # Files that were written anew before this one give room back, once two snapshots do without them.
            for _ in range(SNAPSHOTS):
                await self._checkpoint(line)
            await self._purge_file(segments, file, purge)

    async def _purge_file(self, segments: SegmentPurge, file: FilePlan, purge: Purge) -> None:
        async with self._checkpoints.exclusive:
            segments.begin(file)
            if bool(file.held) and await asyncio.to_thread(segments.examine, file):
                number = self._engine.next_segment
                self._engine.next_segment += 1
                await asyncio.to_thread(segments.rewrite, file, number)
                segments.adopt(file)
                purge.files_rewritten += 1
                purge.records += file.records
                purge.segment_bytes += file.old_bytes - file.new_bytes
        purge.files_examined += 1

    async def _release(self, segments: SegmentPurge, line: int, purge: Purge) -> None:
        """Recovery needs the old files until two snapshots are written; some may be held longer."""
        passes = 0
        while passes < SNAPSHOTS or self._old_journal(line) or segments.old_files():
            if passes >= SNAPSHOTS and self._is_held(segments, line):
                purge.files_held = len(segments.old_files()) + self._old_journal(line)
                await asyncio.sleep(HELD_POLL_S)
                continue
            await self._checkpoint(line)
            passes += 1
        purge.files_held = 0

    def _old_journal(self, line: int) -> int:
        """How many journal files are left in which something deleted may be."""
        return sum(file.base < line for file in self._engine.journal.files)

    def _is_held(self, segments: SegmentPurge, line: int) -> bool:
        """Nothing can go at the moment: readers or backups hold all that is left."""
        kept_from = self._engine.journal.kept_from
        if self._old_journal(line) and (kept_from is None or kept_from >= line):
            return False
        return all(self._engine.store.is_pinned(number) for number in segments.old_files())

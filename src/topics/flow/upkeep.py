"""Background upkeep: journal rotation, clock marks, checkpoints, and the move to the second tier."""

from __future__ import annotations

import asyncio
import logging
import time

from topics.flow.commit import CommitLoop
from topics.flow.tiers import Tiers
from topics.log.checkpoint import Checkpointer
from topics.log.engine import Engine
from topics.storage.frame import Kind

log = logging.getLogger("topics.upkeep")

TICK_S = 0.2
CLOCK_MARK_S = 1.0
# A clock mark promises this much more than now, so that between two marks no line shown can be ahead of it.
CLOCK_AHEAD_MS = 2000
# Checkpoints may take at most this share of the time. What is written meanwhile stays in memory until the
# next one, so a small share would cost a busy server hundreds of megabytes; while there is a backlog to seal,
# they follow each other without rest.
CHECKPOINT_SHARE = 0.5


class Upkeep:
    def __init__(self, engine: Engine, commit: CommitLoop, checkpointer: Checkpointer) -> None:
        self._engine = engine
        self._commit = commit
        self._checkpointer = checkpointer
        self._tiers = Tiers(engine)
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._next_mark = 0.0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._turn()
            except Exception:  # whatever it was: without upkeep, memory and journal would only grow
                log.exception("upkeep failed; it will be tried again")
                await asyncio.sleep(1.0)

    async def _turn(self) -> None:
        engine = self._engine
        if engine.queue.failure is not None:
            return
        engine.rotate_if_full()
        now = time.monotonic()
        if now >= self._next_mark and any(t.config.ttl_ms for t in engine.touched):
            self._next_mark = now + CLOCK_MARK_S
            engine.journal.write(engine.journal.frame(Kind.CLOCK, b"", ts=engine.now() + CLOCK_AHEAD_MS))
        if now >= self._not_before and self._checkpointer.is_due():
            await self.checkpoint()
            while self._checkpointer.is_behind and engine.queue.failure is None:
                await self.checkpoint()
            took_s = time.monotonic() - now
            self._not_before = time.monotonic() + max(0.5, took_s * (1 / CHECKPOINT_SHARE - 1))

    async def checkpoint(self, *, everything: bool = False) -> None:
        """Seal, snapshot and release, with all file writing off the loop."""
        loop = asyncio.get_running_loop()
        checkpointer = self._checkpointer
        self._engine.rotate_if_full()
        plan = checkpointer.plan(everything=everything)
        try:
            for file in plan:
                await loop.run_in_executor(None, checkpointer.write_segment, file)
                checkpointer.adopt(file)
        finally:
            checkpointer.abandon(plan)
        await self._commit.pause()
        try:
            if self._engine.queue.failure is not None:
                return
            body, replay_from = checkpointer.capture()
        finally:
            self._commit.resume()
        await loop.run_in_executor(None, checkpointer.write_snapshot, body)
        checkpointer.release(replay_from)
        for number in self._tiers.due():
            await loop.run_in_executor(None, self._tiers.copy, number)
            self._tiers.switch(number)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            try:
                await self._task
            except asyncio.CancelledError:
                pass

"""Room on the disk: kept in reserve while there is some, watched as it goes, waited for when it is gone."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from topics.core import MIB, WritesOff
from topics.core.clock import until_next
from topics.log import Engine
from topics.storage import BLOCK_BYTES, Room

log = logging.getLogger("topics.disk")

# How often it is looked whether there is room, and how soon it is noticed that there is again.
POLL_S = 1.0
FULL_POLL_S = 0.2
# How often room is measured while there is some, and how far back the rate reaches at which it goes.
SAMPLE_S = 60.0
WINDOW_S = 24 * 3600.0
# The operator is told when the disk will be full within a day, and told again every hour.
SOON_S = 24 * 3600.0
REMIND_S = 3600.0
# For removals alone. Purges and checkpoints need more: as much as a segment, and as two snapshots.
RESERVE_BYTES = 8 * MIB


class FillRate:
    """How fast room goes, going by the last day."""

    def __init__(self) -> None:
        # Times and free bytes, the oldest first.
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, free_bytes: int) -> None:
        samples = self._samples
        samples.append((now_s, free_bytes))
        # The last one that is a whole window old stays: it is where the window begins.
        while len(samples) > 1 and samples[1][0] <= now_s - WINDOW_S:
            samples.popleft()

    @property
    def measured_s(self) -> float:
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    def seconds_left(self) -> float:
        """Until the disk is full, if it goes on like this; infinite while it does not."""
        if not self._samples:
            return math.inf
        (_, before), (_, free) = self._samples[0], self._samples[-1]
        if free >= before or not self.measured_s:
            return math.inf
        return free * self.measured_s / (before - free)


class DiskSpace:
    def __init__(self, engine: Engine, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock_s = clock_s
        self._task: asyncio.Task[None] | None = None
        self._sample_at = 0.0
        self._remind_at = 0.0
        # That the reserve is smaller than it was meant to be is told once.
        self._has_told = False
        self._seen = Room(0, 0, 0)
        self.rate = FillRate()

    def room(self) -> Room:
        """Where the data is kept. If the directory was taken away, as it was before: what operators look at
        has to answer then above all."""
        engine = self._engine
        with suppress(OSError):
            self._seen = engine.fs.room(engine.dirs.root)
        return self._seen

    @property
    def reserve_bytes(self) -> int:
        return self._engine.reserve.size

    def seconds_until_full(self) -> float:
        return 0.0 if self._engine.writes_off is WritesOff.DISK_FULL else self.rate.seconds_left()

    def make_reserve(self, *, is_hasty: bool = False) -> None:
        """Any thread. A server that gets none is worth more than one that does not start."""
        engine = self._engine
        asked = wanted = engine.settings.disk_reserve_bytes
        if wanted is None:
            segment = min(engine.settings.seal_bytes, engine.totals.bytes)
            wanted = RESERVE_BYTES + segment + 2 * engine.snapshots.newest_bytes
        try:
            engine.reserve.make(wanted, is_hasty=is_hasty)
        except OSError as error:
            log.warning("no room is kept in reserve: %s", error)
        if asked is not None and not self._has_told and self.reserve_bytes + BLOCK_BYTES <= asked:
            self._has_told = True
            message = "of %d bytes, %d are kept in reserve: it takes a sixteenth of what is free at most"
            log.warning(message, asked, self.reserve_bytes)

    # --- while it runs ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            every_s = POLL_S if self._engine.writes_off is None else FULL_POLL_S
            await asyncio.sleep(until_next(every_s, loop.time()))
            try:
                await self.turn()
            except Exception:  # whatever it was: without this, writes would not return
                log.exception("the disk could not be looked at; it will be tried again")

    async def turn(self) -> None:
        engine = self._engine
        if engine.read_only:
            return
        if engine.reserve.is_needed:
            # Not only appends find out: a checkpoint may have come first.
            engine.queue.refusals.note_full()
        if engine.writes_off is None:
            await self._look_ahead()
        elif await asyncio.to_thread(engine.reserve.finds_room):
            await asyncio.to_thread(self.make_reserve)
            engine.resume_writes()
        else:
            engine.queue.refusals.try_again()

    async def _look_ahead(self) -> None:
        now = self._clock_s()
        if now < self._sample_at:
            return
        self._sample_at = now + SAMPLE_S
        await asyncio.to_thread(self.make_reserve)
        self.rate.add(now, self.room().free_bytes)
        left = self.rate.seconds_left()
        if left < SOON_S and now >= self._remind_at:
            self._remind_at = now + REMIND_S
            log.warning(
                "the disk will be full in about %.1f hours at the rate of the last %s",
                left / 3600,
                _span(self.rate.measured_s),
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} min"

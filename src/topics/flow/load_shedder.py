"""Load shedding: measure the pressure, slow down what can wait, and refuse only as the last step.

    calm ─▶ merging pushes ─▶ wider commit window ─▶ deferring low priority ─▶ refusing with 429

Pressure is how late the event loop runs, how much of a processor it takes, and how much of the journal's
queue is in use, all of them smoothed. Only lateness leads to refusals: it starts with the lowest priorities
and spares no topic only at the very end. A queue that is full refuses by itself (`log.write.commit_queue`).
Nothing is ever lost by it: a deferred topic is complete for each reader, a refused write has changed nothing.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from time import thread_time

from topics.core import LATENCY_BOUNDS_S, ApiError, Histogram
from topics.core.clock import until_next

SAMPLE_S = 0.05
# While there is hardly anything to do. These samples are taken together with the upkeep.
QUIET_SAMPLE_S = 0.2
QUIET_CPU_SHARE = 0.02
QUIET_LAG_MS = 5.0
# Weight of a new sample: pressure has to last for about half a second before it counts fully.
SMOOTHING = 0.2
# A single stall counts as no more than this, unless the loop was late before: a machine that was suspended
# for a minute is not under pressure when it resumes.
ONE_STALL_MS = 2000.0
STALL_GROWTH = 4.0
MAX_COMMIT_WINDOW_S = 0.010


class Level(IntEnum):
    CALM = 0
    MERGE = 1
    WIDEN = 2
    DEFER = 3
    SHED = 4


# Milliseconds of smoothed lag from which each level applies.
LAG_MS = {Level.MERGE: 20.0, Level.WIDEN: 50.0, Level.DEFER: 150.0, Level.SHED: 500.0}
# A loop that never rests is not late yet, but larger frames cost it less.
CPU_SHARE = {Level.MERGE: 0.9}
# Writes pile up because the disk is slow: larger groups help, and copies of routers would add to it.
QUEUE_SHARE = {Level.WIDEN: 0.25, Level.DEFER: 0.5}
SHED_FROM_MS = LAG_MS[Level.SHED]
# While shedding, topics below this effective priority are refused; more lag spares fewer.
SHED_BELOW = ((500.0, 0), (1000.0, 250), (2000.0, 750), (4000.0, 1001))


class LoadShedder:
    def __init__(self, queue_share: Callable[[], float] = lambda: 0.0) -> None:
        """`queue_share` returns how much of the commit queue is in use, from 0 to 1."""
        self._measure_queue = queue_share
        self.lag_ms = 0.0
        self.cpu_share = 0.0
        self.queue_share = 0.0
        # How long a group of writes may gather before it is written. Read for every group, so no property.
        self.commit_window_s = 0.0
        # Every sample, in seconds.
        self.lags = Histogram(LATENCY_BOUNDS_S)
        self.longest_lag_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._expected = 0.0
        self._cpu_s = 0.0
        self._sampled_at = 0.0

    # --- measuring --------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to measure. Runs on the thread of the loop."""
        self._next_sample(loop, loop.time(), thread_time())

    def _next_sample(self, loop: asyncio.AbstractEventLoop, now: float, cpu_s: float) -> None:
        self._sampled_at, self._cpu_s = now, cpu_s
        self._expected = now + (until_next(QUIET_SAMPLE_S, now) if self.is_quiet else SAMPLE_S)
        self._timer = loop.call_at(self._expected, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        now, cpu_s = loop.time(), thread_time()
        cpu_share = (cpu_s - self._cpu_s) / max(now - self._sampled_at, SAMPLE_S / 2)
        self.observe(max(now - self._expected, 0.0) * 1000, cpu_share, self._measure_queue())
        self._next_sample(loop, now, cpu_s)

    @property
    def is_quiet(self) -> bool:
        """Whether there was hardly anything to do for half a second."""
        is_idle = self.cpu_share < QUIET_CPU_SHARE and self.queue_share < QUIET_CPU_SHARE
        return is_idle and self.lag_ms < QUIET_LAG_MS

    def observe(self, lag_ms: float, cpu_share: float = 0.0, queue_share: float = 0.0) -> None:
        counted_ms = min(lag_ms, ONE_STALL_MS + STALL_GROWTH * self.lag_ms)
        self.lag_ms += SMOOTHING * (counted_ms - self.lag_ms)
        self.cpu_share += SMOOTHING * (cpu_share - self.cpu_share)
        self.queue_share += SMOOTHING * (queue_share - self.queue_share)
        self.lags.observe(lag_ms / 1000)
        self.longest_lag_s = max(self.longest_lag_s, lag_ms / 1000)
        late = _share(self.lag_ms, LAG_MS[Level.WIDEN], LAG_MS[Level.SHED])
        full = _share(self.queue_share, QUEUE_SHARE[Level.WIDEN], QUEUE_SHARE[Level.DEFER])
        self.commit_window_s = MAX_COMMIT_WINDOW_S * max(late, full)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- deciding ---------------------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        is_calm = self.lag_ms < LAG_MS[Level.MERGE] and self.queue_share < QUEUE_SHARE[Level.WIDEN]
        if is_calm and self.cpu_share < CPU_SHARE[Level.MERGE]:
            return Level.CALM
        return max(
            _reached(LAG_MS, self.lag_ms),
            _reached(CPU_SHARE, self.cpu_share),
            _reached(QUEUE_SHARE, self.queue_share),
        )

    def check(self, priority: int) -> None:
        """Raise when a request of this priority has to be refused right now."""
        if self.lag_ms < LAG_MS[Level.SHED]:
            return
        spared_from = max(bound for from_ms, bound in SHED_BELOW if self.lag_ms >= from_ms)
        if priority < spared_from:
            raise self.refusal(self.lag_ms)

    def refusal(self, late_ms: float) -> ApiError:
        """Return a 429 that asks the client to wait about as long as requests are late now."""
        retry_after_ms = int(min(max(late_ms, 250.0), 5000.0))
        return ApiError(
            "throttled",
            "the server is under pressure; try again later",
            {"retry_after_ms": retry_after_ms},
            retry_after_s=-(-retry_after_ms // 1000),
        )


def _reached(levels: dict[Level, float], value: float) -> Level:
    reached = Level.CALM
    for level, least in levels.items():
        if value >= least:
            reached = level
    return reached


def _share(value: float, start: float, full: float) -> float:
    """How far a value has come from `start` to `full`, from 0 to 1."""
    return min(max((value - start) / (full - start), 0.0), 1.0)

"""Load shedding: measure the pressure, slow down what can wait, and refuse only as the last step.

    calm ─▶ merging pushes ─▶ wider commit window ─▶ deferring low priority ─▶ refusing with 429

Pressure is how late the event loop runs, smoothed. Refusal starts with the lowest priorities and spares
nobody only at the very end. A journal queue that is full refuses by itself (see `log.commit`). Nothing is
ever lost by it: a deferred topic is complete for whoever asks, a refused write has changed nothing.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum

from topics.values.errors import ApiError
from topics.values.histogram import LATENCY_BOUNDS_S, Histogram

SAMPLE_S = 0.05
# Weight of a new sample: pressure has to last for about half a second before it counts fully.
SMOOTHING = 0.2
MAX_COMMIT_WINDOW_S = 0.010


class Level(IntEnum):
    CALM = 0
    MERGE = 1
    WIDEN = 2
    DEFER = 3
    SHED = 4


# Milliseconds of smoothed lag from which each level applies.
LAG_MS = {Level.MERGE: 20.0, Level.WIDEN: 50.0, Level.DEFER: 150.0, Level.SHED: 500.0}
SHED_FROM_MS = LAG_MS[Level.SHED]
# While shedding, topics below this effective priority are refused; more lag spares fewer.
SHED_BELOW = ((500.0, 0), (1000.0, 250), (2000.0, 750), (4000.0, 1001))


class Governor:
    def __init__(self) -> None:
        self.lag_ms = 0.0
        # Every sample, in seconds.
        self.lags = Histogram(LATENCY_BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None
        self._expected = 0.0

    # --- measuring --------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._expected = loop.time() + SAMPLE_S
        self._timer = loop.call_at(self._expected, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        self.observe(max(loop.time() - self._expected, 0.0) * 1000)
        self.start(loop)

    def observe(self, lag_ms: float) -> None:
        self.lag_ms += SMOOTHING * (lag_ms - self.lag_ms)
        self.lags.observe(lag_ms / 1000)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- deciding ---------------------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        reached = Level.CALM
        for level, from_ms in LAG_MS.items():
            if self.lag_ms >= from_ms:
                reached = level
        return reached

    @property
    def commit_window_s(self) -> float:
        """How long a group may gather before it is written."""
        start, full = LAG_MS[Level.WIDEN], LAG_MS[Level.SHED]
        share = min(max((self.lag_ms - start) / (full - start), 0.0), 1.0)
        return MAX_COMMIT_WINDOW_S * share

    def defers(self, priority: int) -> bool:
        """Whether a push of this priority should wait for calmer times."""
        return priority < 0 and self.level >= Level.DEFER

    def check(self, priority: int) -> None:
        """Raise when a request of this priority has to be refused right now."""
        if self.lag_ms < LAG_MS[Level.SHED]:
            return
        spared_from = max(bound for from_ms, bound in SHED_BELOW if self.lag_ms >= from_ms)
        if priority < spared_from:
            raise self.refusal(self.lag_ms)

    def refusal(self, late_ms: float) -> ApiError:
        """Come back in about as long as requests are late now."""
        retry_after_ms = int(min(max(late_ms, 250.0), 5000.0))
        return ApiError(
            "throttled",
            "the server is under pressure; try again later",
            {"retry_after_ms": retry_after_ms},
            retry_after_s=-(-retry_after_ms // 1000),
        )

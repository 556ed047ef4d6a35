"""The background pass: what is owed is forwarded at once, then the pass rests in proportion to its work.

A lone record is copied in the next turn of the loop. Under a stream of small writes, the rest gathers many of
them into one step, so that copies to many destinations take a bounded share of the time from writers.
"""

import asyncio
from time import perf_counter

from topics.flow.governor import Governor, Level
from topics.flow.routers.registry import Routers

# Work per turn; what is left waits for the next one.
TURN_S = 0.003
# Rest after a turn: so many times the work, within bounds. A backlog may take most of the time.
REST_FACTOR = 4.0
BACKLOG_REST_FACTOR = 0.5
MIN_REST_S = 0.001
# Also how soon a full destination is looked at again.
MAX_REST_S = 0.04
# Under pressure copies can wait; a reader of a destination still gets them at once.
DEFER_S = 0.25


class RouterPass:
    def __init__(self, routers: Routers, loop: asyncio.AbstractEventLoop, governor: Governor) -> None:
        self._routers = routers
        self._loop = loop
        self._governor = governor
        self._timer: asyncio.TimerHandle | None = None
        self._is_retry = False
        self._is_deferred = False
        self._stopped = False
        self._rested_at = 0.0
        routers.wake = self._wake

    def _wake(self) -> None:
        if self._timer is None or self._is_retry:
            self._schedule(self._rested_at)

    def _schedule(self, at: float, *, is_retry: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._stopped else self._loop.call_at(at, self._turn)
        self._is_retry = is_retry

    def _turn(self) -> None:
        self._timer = None
        if self._governor.level >= Level.DEFER and not self._is_deferred:
            self._is_deferred = True
            self._schedule(self._loop.time() + DEFER_S)
            return
        self._is_deferred = False
        started = perf_counter()
        more = self._routers.forward(lambda: perf_counter() - started > TURN_S)
        worked = perf_counter() - started
        rest = worked * (BACKLOG_REST_FACTOR if more else REST_FACTOR)
        now = self._loop.time()
        self._rested_at = now + min(max(rest, MIN_REST_S), MAX_REST_S)
        if more:
            self._schedule(self._rested_at)
        elif self._routers.stuck:
            self._schedule(now + MAX_REST_S, is_retry=True)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""The background pass: it makes due copies at once, and then rests in proportion to its work.

A single record is copied in the next turn of the loop. A short rest is not worth a timer, and is added to the
next one. Under a stream of small writes, the rest gathers many of them into one step, so that copies to many
destinations take a bounded share of the time from writers.

Copies stay in memory until they are sealed, and there may be many of each record: the write stall holds the
pass back as it does writers.
"""

import asyncio
from time import perf_counter, thread_time
from typing import Protocol

from topics.core import InvariantViolated
from topics.flow.load_shedder import Level, LoadShedder
from topics.flow.routers.registry import Routers

# Work per turn; what is left waits for the next one.
TURN_S = 0.003
# The rest after a turn, as a multiple of its work. A backlog may take most of the time.
REST_FACTOR = 4.0
BACKLOG_REST_FACTOR = 0.5
# A rest up to this length does not delay the next record: it is taken later.
SHORT_REST_S = 0.001
# Also how soon a full destination is tried again.
MAX_REST_S = 0.04
# Under pressure copies wait; a reader of a destination still gets them at once, unless they are a backlog.
DEFER_S = 0.25


class Braked(Protocol):
    """The commit loop, as far as the pass has to know it."""

    def held_s(self) -> float: ...

    def hold_next(self) -> None: ...

    def give_up(self, cause: BaseException) -> None: ...


class RouterPass:
    def __init__(
        self, routers: Routers, loop: asyncio.AbstractEventLoop, load_shedder: LoadShedder, commit: Braked
    ) -> None:
        self._routers = routers
        self._loop = loop
        self._load_shedder = load_shedder
        self._commit = commit
        self._timer: asyncio.TimerHandle | None = None
        self._is_retry = False
        self._is_deferred = False
        self._was_held = False
        self._stopped = False
        self._rested_at = 0.0
        routers.wake = self._wake

    def _wake(self) -> None:
        if self._timer is None or self._is_retry:
            now = self._loop.time()
            self._schedule(now if self._rested_at - now <= SHORT_REST_S else self._rested_at)

    def _schedule(self, at: float, *, is_retry: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._stopped else self._loop.call_at(at, self._turn)
        self._is_retry = is_retry

    def _turn(self) -> None:
        self._timer = None
        if self._load_shedder.level >= Level.DEFER and not self._is_deferred:
            self._is_deferred = True
            self._schedule(self._loop.time() + DEFER_S)
            return
        held_s = self._commit.held_s()
        if held_s and not self._was_held:
            # Only once: otherwise writers would always come first.
            self._was_held = True
            self._schedule(self._loop.time() + held_s)
            return
        self._is_deferred = self._was_held = False
        started, worked_before = perf_counter(), thread_time()
        try:
            more = self._routers.forward(lambda: perf_counter() - started > TURN_S)
        except InvariantViolated as error:
            self._commit.give_up(error)
            self._routers.readers.release_all()
            return
        except Exception:
            self._routers.readers.release_all()
            raise
        self._commit.hold_next()
        self._routers.readers.release_served()
        # Time that other processes used does not count.
        worked = thread_time() - worked_before
        rest = worked * (BACKLOG_REST_FACTOR if more else REST_FACTOR)
        now = self._loop.time()
        self._rested_at = min(max(self._rested_at, now) + rest, now + MAX_REST_S)
        if more:
            self._schedule(self._rested_at)
        elif self._routers.stuck or self._routers.readers:
            self._schedule(now + MAX_REST_S, is_retry=True)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

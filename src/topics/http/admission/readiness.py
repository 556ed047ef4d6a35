"""Admission of data requests by state: not while draining; during recovery, they wait a moment for its end.

A client that has only waited for the port, or for `health`, does not fail for having come a little early.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from topics.core import MIB, ApiError

HOLD_S = 2.0
MOST_HELD = 1000


class Early(Protocol):
    """A request that has to wait."""

    body: bytes

    @property
    def answered(self) -> bool: ...

    def fail(self, error: ApiError) -> None: ...


# Calls for its answer, now that there can be one.
GoOn = Callable[[Any], None]


class Readiness:
    """Closed at first. The engine opens it after recovery, the server closes it for good when draining."""

    def __init__(self, progress: Callable[[], float] | None = None, most_bytes: int = 64 * MIB) -> None:
        """`most_bytes`: what the bodies of those that wait may take in memory."""
        self._progress = progress
        self._draining = False
        self._held: dict[Early, tuple[GoOn, asyncio.TimerHandle]] = {}
        self._held_bytes = 0
        self._most_bytes = most_bytes
        self.open = False
        self.recovering = True

    def admit(self) -> None:
        self.open = not self._draining
        self.recovering = False
        for exchange in tuple(self._held):
            go_on = self._let_go(exchange)
            if not exchange.answered:
                go_on(exchange)

    def drain(self) -> None:
        self._draining = True
        self.open = False
        self.recovering = False
        for exchange in tuple(self._held):
            self._refuse(exchange)

    @property
    def draining(self) -> bool:
        return self._draining

    # Waiting for the end of recovery

    def check_room(self) -> None:
        """Before its body is read: raises for a request that could not be answered and could not wait."""
        if self._draining or not self._has_room(0):
            raise self.refusal()

    def hold(self, exchange: Early, go_on: GoOn) -> None:
        """Call back when it can be answered, or refuse it after a while. Raises when too many wait."""
        if not self._has_room(len(exchange.body)):
            raise self.refusal()
        timer = asyncio.get_running_loop().call_later(HOLD_S, self._refuse, exchange)
        self._held[exchange] = go_on, timer
        self._held_bytes += len(exchange.body)

    def _has_room(self, body_bytes: int) -> bool:
        if len(self._held) < MOST_HELD and self._held_bytes + body_bytes <= self._most_bytes:
            return True
        # Requests whose clients have gone wait for nothing.
        gone = [exchange for exchange in self._held if exchange.answered]
        for exchange in gone:
            self._let_go(exchange)
        return bool(gone) and self._has_room(body_bytes)

    def _refuse(self, exchange: Early) -> None:
        self._let_go(exchange)
        exchange.fail(self.refusal())

    def _let_go(self, exchange: Early) -> GoOn:
        go_on, timer = self._held.pop(exchange)
        timer.cancel()
        self._held_bytes -= len(exchange.body)
        return go_on

    # Replies meanwhile

    def replay_progress(self) -> float:
        if self.open:
            return 1.0
        progress = self._progress() if self._progress is not None else 0.0
        return min(max(float(progress), 0.0), 1.0)

    def refusal(self) -> ApiError:
        if self._draining:
            return ApiError("shutting_down", "the server is shutting down")
        detail = {"replay_progress": self.replay_progress()}
        return ApiError("not_ready", "the server is still recovering its state", detail)

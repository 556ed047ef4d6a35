"""Clients that stall are closed. One look at all connections now and then; no timer per request."""

from __future__ import annotations

import asyncio

from topics.http.wire.context import IDLE, WireContext


class Timeouts:
    """A connection is overdue when one look after the other finds it in the same state for too long."""

    def __init__(self, context: WireContext) -> None:
        self._context = context
        self._allowed_s = context.limits.allowed_s()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._context.loop.call_later(self._context.limits.sweep_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.start()
        self._context.heads.refresh()
        self._context.connection_limit.tell()
        self.sweep(self._context.loop.time())

    def sweep(self, now: float) -> None:
        allowed_s = self._allowed_s
        if self._context.connection_limit.is_crowded(self._context.open_connections):
            # Places are short: clients that ask for nothing have to give theirs up.
            allowed_s = (min(allowed_s[IDLE], self._context.limits.crowded_idle_s), *allowed_s[1:])
        # A copy, because aborting may change the set.
        for connection in tuple(self._context.connections):
            state = connection.progress()
            if state != connection.stalled_state:
                connection.stalled_state = state
                connection.stalled_since = now
            elif now - connection.stalled_since >= allowed_s[state[0]]:
                connection.transport.abort()

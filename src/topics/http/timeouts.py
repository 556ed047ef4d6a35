"""Clients that stall are closed. One look at all connections now and then; no timer per request."""

from __future__ import annotations

import asyncio

from topics.http.edge import IDLE, Edge


class Timeouts:
    """A connection is overdue when one look after the other finds it in the same state for too long."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._allowed_s = edge.limits.allowed_s()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._edge.loop.call_later(self._edge.limits.sweep_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.start()
        self._edge.heads.refresh()
        self._edge.crowd.tell()
        self.sweep(self._edge.loop.time())

    def sweep(self, now: float) -> None:
        allowed_s = self._allowed_s
        if self._edge.crowd.is_crowded(self._edge.open_connections):
            # Places are short: clients that ask for nothing have to give theirs up.
            allowed_s = (min(allowed_s[IDLE], self._edge.limits.crowded_idle_s), *allowed_s[1:])
        # A copy, because aborting may change the set.
        for connection in tuple(self._edge.connections):
            state = connection.progress()
            if state != connection.stalled_state:
                connection.stalled_state = state
                connection.stalled_since = now
            elif now - connection.stalled_since >= allowed_s[state[0]]:
                connection.transport.abort()

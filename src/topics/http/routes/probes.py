"""Liveness and readiness."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import msgspec

import topics
from topics.http.door.readiness import Readiness
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route


class Probes:
    def __init__(
        self, readiness: Readiness, topic_count: Callable[[], int], *, version: str | None = None
    ) -> None:
        self._gate = readiness
        self._topic_count = topic_count
        self._version = topics.__version__ if version is None else version
        self._started = monotonic()

    def uptime_ms(self) -> int:
        return int((monotonic() - self._started) * 1000)

    def health(self, exchange: Exchange) -> None:
        answer = {"status": "ok", "version": self._version, "uptime_ms": self.uptime_ms()}
        exchange.reply(msgspec.json.encode(answer))

    def ready(self, exchange: Exchange) -> None:
        if not self._gate.open:
            raise self._gate.refusal()
        answer = {"status": "ready", "wal_replay_complete": True, "topics": self._topic_count()}
        exchange.reply(msgspec.json.encode(answer))

    def routes(self, *, key_needed: bool) -> list[Route]:
        """`key_needed`: any valid key will do."""
        paths = (
            ("/v0/health", self.health),
            ("/healthz", self.health),
            ("/v0/ready", self.ready),
            ("/readyz", self.ready),
        )
        return [
            Route(method="GET", template=path, handler=handler, public=not key_needed, always_open=True)
            for path, handler in paths
        ]

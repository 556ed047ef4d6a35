"""What the server says of itself: health, readiness, version and room, and the OpenAPI document."""

from collections.abc import Callable, Iterable
from time import monotonic, time
from typing import Any

import msgspec

import topics
from topics import codec
from topics.core import ApiError, WritesOff, invalid
from topics.engine.node import Node
from topics.http.admission.auth import ADMIN, READ
from topics.http.admission.readiness import Readiness
from topics.http.exchange import Exchange
from topics.http.routes.service import answer
from topics.http.routing import Route


class Probes:
    def __init__(
        self,
        readiness: Readiness,
        topic_count: Callable[[], int],
        *,
        key_needed: bool,
        writes_off: Callable[[], WritesOff | None] = lambda: None,
        clock_ahead_ms: Callable[[], int] = lambda: 0,
        version: str = topics.__version__,
        base_path: str = "",
        routes: Callable[[], Iterable[Route]] = tuple,
    ) -> None:
        """`key_needed`: require any valid key. `writes_off`: why the server takes no writes.

        `clock_ahead_ms`: how far record times are ahead of the clock, or 0 if that is not worth reporting.
        `routes`: all routes of the server.
        """
        self._readiness = readiness
        self._topic_count = topic_count
        self._key_needed = key_needed
        self._writes_off = writes_off
        self._clock_ahead_ms = clock_ahead_ms
        self._version = version
        self._base_path = base_path
        self._routes = routes
        self._started = monotonic()
        self._document = b""

    def routes(self) -> list[Route]:
        paths = (
            ("/v0/health", self.health, ()),
            ("/healthz", self.health, ()),
            ("/v0/ready", self.ready, ("for",)),
            ("/readyz", self.ready, ("for",)),
            # It contains nothing that the source code does not.
            ("/v0/openapi.json", self.openapi, ()),
        )
        public = not self._key_needed
        return [
            Route("GET", path, handler, public=public, always_open=True, query=query)
            for path, handler, query in paths
        ]

    def uptime_ms(self) -> int:
        return int((monotonic() - self._started) * 1000)

    def health(self, exchange: Exchange) -> None:
        answer = {"status": "ok", "version": self._version, "uptime_ms": self.uptime_ms()}
        exchange.reply(msgspec.json.encode(answer))

    def ready(self, exchange: Exchange) -> None:
        """Report whether the server answers reads; with `for=writes`, whether it takes writes, too."""
        purpose = exchange.query("for")
        if purpose not in (None, "writes"):
            raise invalid("for must be writes")
        if not self._readiness.open:
            raise self._readiness.refusal()
        answer: dict[str, Any] = {"status": "ready"}
        reason = self._writes_off()
        if reason is not None:
            if purpose == "writes":
                raise ApiError("not_ready", "the server takes no writes", {"reason": reason})
            answer = {"status": "degraded", "reason": reason}
        answer |= {"wal_replay_complete": True, "topics": self._topic_count(), "codec": codec.NAME}
        ahead_ms = self._clock_ahead_ms()
        if ahead_ms:
            answer["clock_ahead_ms"] = ahead_ms
        exchange.reply(msgspec.json.encode(answer))

    def openapi(self, exchange: Exchange) -> None:
        if not self._document:
            # Imported and built for the first request, so that the start does not pay for it.
            from topics.http.openapi import build

            document = build(self._routes())
            document["info"]["version"] = self._version
            document["servers"] = [{"url": self._base_path or "/"}]
            self._document = msgspec.json.encode(document)
        exchange.reply(self._document)


class InfoRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.started_ms = int(time() * 1000)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v0/info", self.show, scopes=READ),
        ]

    def show(self, exchange: Exchange) -> None:
        node, off = self._node, self._node.engine.writes_off
        about: dict[str, Any] = {
            "version": topics.__version__,
            "started_ms": self.started_ms,
            "writes": off is None,
            "reason": off,
            "disk": {"free_bytes": node.disk.room().free_bytes, "reserve_bytes": node.disk.reserve_bytes},
        }
        if exchange.key is None or exchange.key.can(ADMIN):
            about["data_dir"] = node.engine.dirs.root
        answer(exchange, about)

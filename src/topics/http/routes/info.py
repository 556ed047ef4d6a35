"""What is running here, whether it takes writes and why not, how much room there is; and who is asking."""

from time import time
from typing import Any

import topics
from topics.http.door.keys import ADMIN, READ, SCOPES, ApiKey
from topics.http.routes.service import answer
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.node.node import Node


class InfoRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.started_ms = int(time() * 1000)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v0/info", self.show, scopes=READ),
            # Any key may ask about itself.
            Route("GET", "/v0/whoami", self.whoami),
        ]

    def whoami(self, exchange: Exchange) -> None:
        exchange.refuse_misnamed()
        answer(exchange, about_key(exchange.key))

    def show(self, exchange: Exchange) -> None:
        exchange.refuse_misnamed()
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


def about_key(key: ApiKey | None) -> dict[str, Any]:
    """What its holder may know of it: not the secret."""
    if key is None:
        return {"auth": "off"}
    scopes = [name for name, bit in SCOPES.items() if key.can(bit)]
    return {"name": key.name, "scopes": scopes, "prefixes": list(key.prefixes)}

"""`GET /v0/openapi.json`: what this server can be asked, for machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route


class OpenApi:
    """The document is made when somebody first asks for it, so that starting does not pay for it."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """`routes` may still grow until then."""
        self._routes = routes
        self._document = b""

    def routes(self, *, key_needed: bool) -> list[Route]:
        """Open like the probes: it holds nothing that the source code does not."""
        return [
            Route(
                method="GET",
                template="/v0/openapi.json",
                handler=self.show,
                public=not key_needed,
                always_open=True,
            )
        ]

    async def show(self, exchange: Exchange) -> None:
        if not self._document:
            self._document = await asyncio.to_thread(self._make)
        exchange.reply(self._document)

    def _make(self) -> bytes:
        from topics.http.openapi.document import build

        return msgspec.json.encode(build(self._routes))

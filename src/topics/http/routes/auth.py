"""Who is asking, and tickets: a page that has a key, but cannot send it, opens a stream with a ticket."""

from collections.abc import Callable
from typing import Any

import msgspec

from topics.core import invalid
from topics.http.admission.address import parse_base_path
from topics.http.admission.admit import check_rights
from topics.http.admission.auth import LIFETIME_S, SCOPES, ApiKey, Tickets
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer
from topics.http.routing import Body, Match, Route


class TicketBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    path: str


class AuthRoutes:
    def __init__(self, service: Service, find: Callable[[bytes, bytes], Match]) -> None:
        """`find` knows the routes by method and target."""
        self.tickets = Tickets(base=parse_base_path(service.settings.base_path).encode())
        self._service = service
        self._find = find

    def routes(self) -> list[Route]:
        # What the key has to be good for is decided by the path that is asked for.
        return [
            Route("POST", "/v0/tickets", self.issue, body=Body.REQUIRED, accepts=TicketBody),
            # Any key may ask about itself.
            Route("GET", "/v0/whoami", self.whoami),
        ]

    def whoami(self, exchange: Exchange) -> None:
        answer(exchange, about_key(exchange.key))

    def issue(self, exchange: Exchange, body: TicketBody) -> None:
        path = body.path
        target = path.encode()
        match = self._find(b"GET", target)
        if not (path.startswith("/") and path.isascii() and path.isprintable()):
            raise invalid("path must be a path of this server, with its query")
        if match.route is None or not match.route.event_stream:
            raise invalid("path must be that of an event stream")
        if exchange.key is not None:
            check_rights(exchange.key, match)
        exchange.refuse_unknown_fields()
        ticket = self.tickets.issue(exchange.key, target)
        expires_ms = self._service.engine.now() + int(LIFETIME_S * 1000)
        answer(exchange, {"ticket": ticket, "expires_ms": expires_ms})


def about_key(key: ApiKey | None) -> dict[str, Any]:
    """What its holder may know of it: not the secret."""
    if key is None:
        return {"auth": "off"}
    scopes = [name for name, bit in SCOPES.items() if key.can(bit)]
    return {"name": key.name, "scopes": scopes, "prefixes": list(key.prefixes)}

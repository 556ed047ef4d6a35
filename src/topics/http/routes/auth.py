"""The key of the caller, and tickets: with a ticket, a page that cannot send its key opens a stream."""

from typing import Any

import msgspec

from topics.core import invalid
from topics.http.admission.admit import check_rights
from topics.http.admission.auth import LIFETIME_S, SCOPES, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Body


class TicketBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    path: str


# The path in the body decides which scopes the key needs.
@routes.add("POST", "/v0/tickets", body=Body.REQUIRED, accepts=TicketBody)
def issue(service: Service, exchange: Exchange, body: TicketBody) -> None:
    path = body.path
    target = path.encode()
    match = service.server.find_route(b"GET", target)
    if not (path.startswith("/") and path.isascii() and path.isprintable()):
        raise invalid("path must be a path of this server, with its query")
    if match.route is None or not match.route.event_stream:
        raise invalid("path must be that of an event stream")
    if exchange.key is not None:
        check_rights(exchange.key, match)
    exchange.refuse_unknown_fields()
    ticket = service.tickets.issue(exchange.key, target)
    answer(exchange, {"ticket": ticket, "expires_ms": service.engine.now() + int(LIFETIME_S * 1000)})


# Any key may ask about itself.
@routes.add("GET", "/v0/whoami")
def whoami(_: Service, exchange: Exchange) -> None:
    answer(exchange, about_key(exchange.key))


def about_key(key: ApiKey | None) -> dict[str, Any]:
    """Return what the holder of a key may know of it: everything but the secret."""
    if key is None:
        return {"auth": "off"}
    scopes = [name for name, bit in SCOPES.items() if key.can(bit)]
    return {"name": key.name, "scopes": scopes, "prefixes": list(key.prefixes)}

"""Which headers a request needs: a key (Authorization), a type (Content-Type), and a stream's Accept.

Those that open a WebSocket are with it, in `wire.websocket`; those a route looks at are in `openapi.json`.
"""

import base64
import binascii
from typing import TYPE_CHECKING

from topics.http.wire.answer_heads import ARROW, JSON
from topics.http.wire.routing import Body
from topics.values import ApiError, invalid

if TYPE_CHECKING:
    from topics.http.door.keys import ApiKey, KeyRing
    from topics.http.door.tickets import Tickets
    from topics.http.wire.request import Request
    from topics.http.wire.routing import Route


# What a page offers to open a WebSocket: the protocol, and its key, since it cannot send headers.
SOCKET_PROTOCOL = b"topics.v0"
_KEY_PROTOCOL = b"topics.key."


def presented_key(
    keyring: "KeyRing", tickets: "Tickets", request: "Request", route: "Route | None"
) -> "ApiKey | None":
    authorization = request.headers.get(b"authorization")
    if authorization is not None:
        return keyring.by_header(authorization)
    if route is None:
        return None
    if route.event_stream and (ticket := request.query("ticket")):
        return tickets.redeem(ticket, request.target)
    if route.token_in_query and (token := request.query("token")):
        return keyring.by_secret(token.encode("utf-8", "replace"))
    return _socket_key(keyring, request) if route.websocket else None


def offered_protocols(request: "Request") -> list[bytes]:
    offered = request.headers.get(b"sec-websocket-protocol", b"").split(b",")
    return [protocol.strip() for protocol in offered]


def _socket_key(keyring: "KeyRing", request: "Request") -> "ApiKey | None":
    for protocol in offered_protocols(request):
        if protocol.startswith(_KEY_PROTOCOL):
            encoded = protocol.removeprefix(_KEY_PROTOCOL).rstrip(b"=")
            try:
                padded = encoded + b"=" * (-len(encoded) % 4)
                return keyring.by_secret(base64.b64decode(padded, b"-_", validate=True))
            except binascii.Error:
                return None
    return None


def unauthorized() -> ApiError:
    return ApiError("unauthorized", "a valid API key is needed")


def require_event_stream_accepted(request: "Request") -> None:
    accept = request.headers.get(b"accept", b"").strip().lower()
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise ApiError("not_acceptable", "this path answers with text/event-stream, which Accept excludes")


def require_body_type(route: "Route", request: "Request") -> None:
    """Raises for a body this route does not take. Expects the body as the client sent it."""
    empty = not request.body
    if empty and route.body is Body.OPTIONAL:
        return
    if empty and route.body is Body.NEVER_EMPTY:
        raise invalid("the body must not be empty")
    require_type(request, ARROW if route.arrow else JSON)
    encoding = request.headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity", b"gzip"):
        raise ApiError("unsupported_media_type", "the only content encoding understood is gzip")


def require_type(request: "Request", wanted: bytes = JSON) -> None:
    """JSON is taken everywhere: what is wrong with it is told by what reads it."""
    content_type = request.headers.get(b"content-type")
    if content_type != JSON:
        content_type = (content_type or b"").strip().lower()
        if not content_type.startswith((JSON, wanted)):
            wanted_types = dict.fromkeys((JSON, wanted))
            told = " or ".join(kind.decode() for kind in wanted_types)
            raise ApiError("unsupported_media_type", f"the body must be declared as {told}")

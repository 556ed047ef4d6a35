"""Refusals that need only the head of a request, in the order that clients rely on.

host, page -> key -> place in flight -> scope -> name -> route -> server state -> Accept -> type -> size
"""

import base64
import binascii
from typing import TYPE_CHECKING

from topics.core import ApiError, invalid
from topics.http.admission.auth import unauthorized
from topics.http.response_heads import ARROW, JSON
from topics.http.routing import Body

if TYPE_CHECKING:
    from topics.http.admission.auth import ApiKey, KeyRing, Tickets
    from topics.http.context import WireContext
    from topics.http.request import Request
    from topics.http.routing import Match, Route

# The subprotocols of a page that opens a WebSocket: the protocol, and its key, since it cannot send headers.
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


def admit(context: "WireContext", request: "Request") -> None:
    """Set the route, the name and the key of the request; raise the error with which it is refused."""
    match = context.routes.find(request.method_bytes, request.target)
    route = match.route
    request.resolve(match)
    context.callers.check(request, match)
    if context.keyring.enabled and (route is None or not route.public):
        _authorise(context, request, match)
    if route is None:
        if match.allow:
            raise ApiError("method_not_allowed", "this path does not answer to that method")
        raise ApiError("not_found", "no such path")
    if not context.readiness.open and not route.always_open:
        context.readiness.check_room()
    if route.event_stream and not route.auth_in_handler:
        require_event_stream_accepted(request)
    check_type(request)
    length = request.headers.get(b"content-length")
    if length is not None and (size := int(length)) > context.small_body_bytes:
        if size > context.max_body_bytes:
            raise too_large(context.max_body_bytes)
        request.take_room(context.request_room, size)


def _authorise(context: "WireContext", request: "Request", match: "Match") -> None:
    route = match.route
    key = presented_key(context.keyring, context.tickets, request, route)
    request.identify(key)
    if route is not None and route.auth_in_handler:
        return
    if key is None:
        raise unauthorized()
    if route is None or route.counted:
        request.take_place(context.settings.max_inflight_per_key)
    check_rights(key, match)


def check_rights(key: "ApiKey", match: "Match") -> None:
    """Raises when the key may not use the route, or not with the name in the path."""
    route = match.route
    if route is not None:
        if key.scopes & route.scopes != route.scopes:
            raise ApiError("forbidden", "the key lacks a scope this route needs")
        if route.all_names and key.prefixes:
            raise ApiError("forbidden", "this route needs a key that is not restricted to some names")
    if match.restricted and not key.allows(match.name):
        raise ApiError("forbidden", "the key does not cover this name")


def too_large(max_body_bytes: int) -> ApiError:
    return ApiError("payload_too_large", f"the body is larger than {max_body_bytes} bytes")


def check_type(request: "Request") -> None:
    """A page can send a POST without a body to anywhere, but not one that says that it is JSON."""
    headers = request.headers
    if request.method_bytes == b"POST" and b"origin" in headers and not _has_body(headers):
        require_type(request, ARROW)


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""

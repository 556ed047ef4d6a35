"""What can be refused from the head of a request alone, in the order clients rely on.

host, page -> key -> place in flight -> scope -> name -> route -> server state -> Accept -> type -> size
"""

from typing import TYPE_CHECKING

from topics.http.door.callers import check_type
from topics.http.door.required_headers import presented_key, require_event_stream_accepted, unauthorized
from topics.values import ApiError, limit_reached

if TYPE_CHECKING:
    from topics.http.door.keys import ApiKey
    from topics.http.wire.context import WireContext
    from topics.http.wire.request import Request
    from topics.http.wire.routing import Match


def admit(context: "WireContext", request: "Request") -> None:
    """Set the route, the name and the key of the request; raise the error with which it is refused."""
    match = context.routes.find(request.method_bytes, request.target)
    route = match.route
    request.resolve(match)
    context.callers.check(request, match)
    if context.keyring.enabled and (route is None or not route.public):
        _authorise(context, request, match)
    if route is None:
        raise _not_routed(match)
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
        take_place(context, request, key)
    check_rights(key, match)


def take_place(context: "WireContext", request: "Request", key: "ApiKey") -> None:
    most = context.settings.max_inflight_per_key
    if most and key.inflight >= most:
        raise limit_reached("max_inflight_per_key", most)
    request.take_place()


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


def _not_routed(match: "Match") -> ApiError:
    if match.allow:
        return ApiError("method_not_allowed", "this path does not answer to that method")
    return ApiError("not_found", "no such path")


def too_large(max_body_bytes: int) -> ApiError:
    return ApiError("payload_too_large", f"the body is larger than {max_body_bytes} bytes")

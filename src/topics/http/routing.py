"""Routes, and the lookup of a handler by method and path."""

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import unquote_to_bytes

from topics.core import LATENCY_BOUNDS_S, Histogram, StrictDecoder
from topics.core.measurements import Holds
from topics.http.admission.address import without_base

# Takes an `Exchange`, and the decoded body if the route `accepts` one.
Handler = Callable[..., None] | Callable[..., Coroutine[Any, Any, None]]
# Takes an `Exchange`, the name in its path, the size of its body, and a function that is called with the
# exchange when its turn comes.
Enter = Callable[[Any, str, int, Callable[[Any], None]], None]
# Path parameters that are names of topics, routers or pipelines, and so fall under a key's prefixes.
_RESTRICTED = ("topic", "router", "q", "pipeline")
_REMEMBERED_TARGETS = 8192
_REMEMBERED_TARGET_BYTES = 512


def latencies() -> tuple[Histogram, ...]:
    """One histogram for each class of status: 0 (none), 1xx … 5xx."""
    return tuple(Histogram(LATENCY_BOUNDS_S) for _ in range(6))


class Body(Enum):
    """How a route treats the body of a request."""

    IGNORED = "ignored"
    REQUIRED = "required"
    OPTIONAL = "an empty body means all defaults"
    NEVER_EMPTY = "an empty body is refused whatever its type"


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    method: str
    template: str
    handler: Handler
    _: KW_ONLY
    # All of these scopes are needed; 0 needs just a valid key.
    scopes: int = 0
    body: Body = Body.IGNORED
    # The type of a decoded body; None for a handler that decodes by itself. A handler that takes large bodies
    # gets None for them, and decodes them in pieces.
    accepts: type | None = None
    # Admission of the log, for requests that may have to wait for their turn. Large bodies do not pass it.
    enter: Enter | None = None
    # Names of the query parameters it looks at.
    query: tuple[str, ...] = ()
    # Query parameters that may come several times.
    repeatable: tuple[str, ...] = ()
    # The body may also be an Arrow stream.
    arrow: bool = False
    # The handler takes large bodies apart by itself; where it does not, they are refused.
    takes_large: bool = False
    # The error code for a large body that is refused.
    too_large: str = "invalid_request"
    # Server-sent events: the client must accept them, and the request takes no in-flight place.
    event_stream: bool = False
    # May be upgraded; takes no in-flight place either.
    websocket: bool = False
    # `?token=` counts as a key when there is no Authorization header.
    token_in_query: bool = False
    # The handler decides about the key, and then about Accept; `exchange.key` may be None.
    auth_in_handler: bool = False
    # No key needed at all.
    public: bool = False
    # Refuses keys that are restricted to some names.
    all_names: bool = False
    # Answers while recovering, while draining, and however busy its key is.
    always_open: bool = False
    is_async: bool = field(init=False)
    # Its query parameters, with those that every route of its kind has.
    known_query: frozenset[str] = field(init=False)
    takes_body: bool = field(init=False)
    decoder: StrictDecoder[Any] | None = field(init=False)
    # The meaning of an empty body, if the route accepts one.
    default: Any = field(init=False)
    # Takes a place among the requests a key may have in flight.
    counted: bool = field(init=False)
    # How long its requests took, by class of status.
    timings: tuple[Histogram, ...] = field(init=False, repr=False)
    # How long they kept the loop to themselves.
    holds: Holds = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.handler))
        of_all: tuple[str, ...] = ("token",) if self.token_in_query else ()
        if self.event_stream:
            of_all += ("ticket", "last_event_id")
        object.__setattr__(self, "known_query", frozenset((*self.query, *of_all)))
        object.__setattr__(self, "takes_body", self.body is not Body.IGNORED)
        decoder: StrictDecoder[Any] | None = None if self.accepts is None else StrictDecoder(self.accepts)
        object.__setattr__(self, "decoder", decoder)
        is_optional = self.accepts is not None and self.body is Body.OPTIONAL
        object.__setattr__(self, "default", self.accepts() if is_optional else None)  # type: ignore[misc]
        object.__setattr__(self, "takes_large", self.takes_large or self.arrow)
        object.__setattr__(self, "counted", not (self.event_stream or self.websocket or self.always_open))
        object.__setattr__(self, "timings", latencies())
        object.__setattr__(self, "holds", Holds())


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The result of resolving a method and a path. Without a route, the path or the method is unknown."""

    route: Route | None
    # The first path parameter, decoded.
    name: str
    # The others, decoded.
    params: tuple[str, ...]
    # The name is a topic's or router's, so a key's prefixes apply to it.
    restricted: bool
    # Methods of a known path, for the Allow header.
    allow: bytes
    # Only the head of the answer is wanted.
    is_head: bool = False


class _Node:
    __slots__ = ("any_segment", "literals", "parameter", "routes")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.any_segment: _Node | None = None
        self.parameter = ""
        self.routes: dict[bytes, Route] = {}


_UNKNOWN = Match(None, "", (), False, b"")


class RouteTree:
    """All routes, segment by segment of their paths."""

    def __init__(self, routes: Iterable[Route], base: bytes = b"") -> None:
        """`base`: a path that requests may have in front of those of the routes."""
        self._root = _Node()
        self._base = base
        # Clients ask for the same few targets again and again.
        self._remembered: dict[tuple[bytes, bytes], Match] = {}
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.template[1:].split("/"):
            if segment.startswith(":"):
                if node.any_segment is None:
                    node.any_segment = _Node()
                    node.any_segment.parameter = segment[1:]
                node = node.any_segment
            else:
                node = node.literals.setdefault(segment, _Node())
        method = route.method.encode()
        if method in node.routes:
            raise ValueError(f"two routes for {route.method} {route.template}")
        node.routes[method] = route

    def find(self, method: bytes, target: bytes) -> Match:
        """`target` is the request target as sent, with or without a query."""
        mark = target.find(b"?")
        path = target if mark < 0 else target[:mark]
        match = self._remembered.get((method, path))
        if match is None:
            match = self._resolve(method, path)
            if match.route is not None and len(path) <= _REMEMBERED_TARGET_BYTES:
                if len(self._remembered) >= _REMEMBERED_TARGETS:
                    self._remembered.clear()
                self._remembered[method, path] = match
        return match

    def _resolve(self, method: bytes, path: bytes) -> Match:
        path = without_base(path_of(path), self._base)
        if not path.startswith(b"/"):
            return _UNKNOWN
        node: _Node | None = self._root
        names: list[str] = []
        restricted = False
        for raw in path[1:].split(b"/"):
            # Decoded after splitting, so that an encoded slash stays inside its segment. Bytes that are
            # not UTF-8 become a character no name may contain: such a name is simply never found.
            segment = (unquote_to_bytes(raw) if b"%" in raw else raw).decode("utf-8", "replace")
            assert node is not None
            following = node.literals.get(segment)
            if following is None and segment:
                following = node.any_segment
                if following is not None:
                    restricted = restricted or (not names and following.parameter in _RESTRICTED)
                    names.append(segment)
            if following is None:
                return _UNKNOWN
            node = following
        assert node is not None
        if not node.routes:
            return _UNKNOWN
        name = names[0] if names else ""
        route = node.routes.get(method)
        shown = node.routes.get(b"GET")
        has_head = shown is not None and not (shown.event_stream or shown.websocket)
        is_head = has_head and route is None and method == b"HEAD"
        if is_head:
            route = shown
        methods = [*node.routes, *([b"HEAD"] if has_head else [])]
        allow = b"" if route is not None else b", ".join(sorted(methods))
        return Match(route, name, tuple(names[1:]), restricted, allow, is_head)


def path_of(target: bytes) -> bytes:
    """The path in a request target, which proxies may send as a whole URL."""
    path = target.partition(b"#")[0].partition(b"?")[0]
    if not path.startswith(b"/") and b"://" in path:
        _, slash, rest = path.partition(b"://")[2].partition(b"/")
        return slash + rest or b"/"
    return path

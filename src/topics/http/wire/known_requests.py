"""Clients that keep their connections send the same heads again and again.

A head that was parsed, routed and let in once is remembered with all that came of it. The same bytes again
need neither parsing nor routing nor a look at the key.
"""

from topics.http.wire.answer_heads import JSON
from topics.http.wire.request import Request
from topics.http.wire.routing import Route

# Headers whose requests the parser has to see each time.
_UNREPEATABLE = (b"expect", b"upgrade", b"transfer-encoding")
_MOST_HEADS = 4096
_MOST_HEAD_BYTES = 1024
END = b"\r\n\r\n"


class KnownRequest:
    """Everything about a request but its body."""

    __slots__ = ("body_bytes", "headers", "is_json", "key", "method", "name", "params", "route", "target")

    def __init__(self, like: Request, route: Route) -> None:
        self.body_bytes = like.received
        self.headers = like.headers
        self.key = like.key
        self.method = like.method_bytes
        self.name = like.name
        self.params = like.params
        self.route = route
        self.target = like.target
        # Nothing about the body has to be asked before its handler gets it.
        plain_json = self.headers.get(b"content-type") == JSON and b"content-encoding" not in self.headers
        self.is_json = not route.is_async and plain_json and route.takes_body


class KnownRequests:
    """Found by hash. An attacker cannot feel its way to a key here: bytes are compared only where two hashes
    agree, and the hash is keyed with a secret of this process."""

    __slots__ = ("_heads", "get")

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownRequest] = {}
        self.get = self._heads.get

    def forget(self) -> None:
        """What keys may do has changed."""
        self._heads.clear()

    def remember(self, request: Request, data: bytes) -> None:
        """`data` is exactly this request; not all kinds are worth it, or may be taken without parsing."""
        headers, route = request.headers, request.route
        if route is None or not route.counted or not request.handled or not request.plain:
            return
        # Its query was looked at, and nothing in it is unknown: so it will be next time.
        if request.misnamed is not None:
            return
        if not request.received or any(name in headers for name in _UNREPEATABLE):
            return
        head_bytes = len(data) - request.received - len(END)
        if head_bytes > _MOST_HEAD_BYTES or data.find(END) != head_bytes:
            return
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[data[:head_bytes]] = KnownRequest(request, route)

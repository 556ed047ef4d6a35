"""Request heads that were parsed and admitted before: clients that keep their connections repeat them.

A head is remembered with its route, its names and its API key. The same bytes again need no parsing, no
routing and no look at the API key. The idempotency key, which differs each time, is left out of the head.
"""

from sys import intern

from topics.http.request import Request
from topics.http.response_heads import JSON
from topics.http.routing import Route

# Headers whose requests the parser has to see each time.
_UNREPEATABLE = (b"expect", b"upgrade", b"transfer-encoding")
_MOST_HEADS = 4096
MOST_HEAD_BYTES = 1024
END = b"\r\n\r\n"
# The idempotency key as most clients send it; any other is left to the parser.
KEY_HEADER = b"idempotency-key"
_KEY_LINES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")
_KEY_AT = len(_KEY_LINES[0])


class KnownHead:
    """All of a request but its body and its idempotency key."""

    __slots__ = ("body_bytes", "headers", "is_plain", "key", "method", "name", "params", "route", "target")

    def __init__(self, like: Request, route: Route) -> None:
        self.body_bytes = like.received
        self.headers = {name: value for name, value in like.headers.items() if name != KEY_HEADER}
        self.key = like.key
        self.method = like.method_bytes
        # Equal names are one object, so that comparing two of them is cheap.
        self.name = intern(like.name)
        self.params = like.params
        self.route = route
        self.target = like.target
        # Nothing but its size is left to look at before its handler gets a body.
        is_json = self.headers.get(b"content-type") == JSON and b"content-encoding" not in self.headers
        self.is_plain = route.takes_body and is_json and self.body_bytes > 0 and not route.is_async


class KnownHeads:
    """Found by hash. Timing does not reveal an API key byte by byte: two heads are compared only if their
    hashes agree, and the hash is keyed with a secret of this process."""

    def __init__(self) -> None:
        self.heads: dict[bytes, KnownHead] = {}
        # Where the line of the key was in the last head that had one: often it is there again.
        self._key_line_at = 0
        self.get = self.heads.get

    def forget(self) -> None:
        """Forget all heads: what API keys may do has changed."""
        self.heads = {}
        self.get = self.heads.get

    def find_keyed(self, head: bytes) -> tuple[KnownHead | None, bytes]:
        """Look up a head that is not known as it is, without its idempotency key. Return the known head and
        the key."""
        parts = self._without_key(head)
        return (None, b"") if parts is None else (self.get(parts[0]), parts[1])

    def _without_key(self, head: bytes) -> tuple[bytes, bytes] | None:
        """Return the head without the line of its idempotency key, and the key. None if it has none, or one
        that the parser might refuse or read in another way."""
        at = self._key_line_at
        if head[at : at + _KEY_AT] not in _KEY_LINES:
            found = [line_at for line in _KEY_LINES if (line_at := head.find(line)) >= 0]
            if not found:
                return None
            self._key_line_at = at = min(found)
        stop = head.find(b"\r\n", at + _KEY_AT)
        if stop < 0:
            stop = len(head)
        key = head[at + _KEY_AT : stop]
        if not (key and key.isascii() and key.decode().isprintable() and key == key.strip()):
            return None
        return head[:at] + head[stop:], key

    def remember(self, request: Request, data: bytes) -> None:
        """Remember the head of a request that has been handled, if requests like it need no parsing.

        `data` begins with the head of this request, and has at most its body after that.
        """
        headers, route = request.headers, request.route
        if route is None or not route.counted or not request.handled or not request.plain:
            return
        # Its query was looked at, and nothing in it is unknown: so it will be next time.
        if request.unknown_fields is not None:
            return
        if not request.received or any(name in headers for name in _UNREPEATABLE):
            return
        head_bytes = data.find(END)
        if not 0 < head_bytes <= MOST_HEAD_BYTES:
            return
        head = data[:head_bytes]
        if KEY_HEADER in headers:
            parts = self._without_key(head)
            if parts is None or parts[1] != headers[KEY_HEADER]:
                return
            head = parts[0]
        if head in self.heads:
            return
        if len(self.heads) >= _MOST_HEADS:
            self.forget()
        self.heads[head] = KnownHead(request, route)

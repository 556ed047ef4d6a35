"""A client that keeps its connection sends the same head again and again; only the length differs.

Such a request is recognised by comparing bytes, and needs neither parsing nor routing.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from topics.http.exchange import Exchange

if TYPE_CHECKING:
    from topics.http.protocol import Connection

# More digits than any body we accept has.
_LENGTH_DIGITS = 12
# Headers whose requests the parser has to see each time.
_UNREPEATABLE = (b"expect", b"upgrade", b"transfer-encoding")


class Repeat:
    """A request that was parsed and let in, as a pattern: the bytes before and after its length."""

    __slots__ = (
        "_after",
        "_after_bytes",
        "_before",
        "_before_bytes",
        "_headers",
        "_key",
        "_method",
        "_name",
        "_params",
        "_route",
        "_target",
    )

    def __init__(self, before: bytes, after: bytes, like: Exchange) -> None:
        self._before = before
        self._before_bytes = len(before)
        self._after = after
        self._after_bytes = len(after)
        # The length may differ next time; better none than a wrong one.
        self._headers = {name: value for name, value in like.headers.items() if name != b"content-length"}
        self._key = like.key
        self._method = like.method_bytes
        self._name = like.name
        self._params = like.params
        self._route = like.route
        self._target = like.target

    @classmethod
    def of(cls, exchange: Exchange, data: bytes) -> Repeat | None:
        """`data` is exactly this request; None when it is of a kind that has to be parsed each time."""
        headers, route = exchange.headers, exchange.route
        if route is None or not route.counted or not exchange.handled or not exchange.plain:
            return None
        if b"content-length" not in headers or any(name in headers for name in _UNREPEATABLE):
            return None
        head = data[: len(data) - exchange.received]
        digits = headers[b"content-length"]
        name_at = head.lower().find(b"\r\ncontent-length:")
        colon = head.find(b":", name_at)
        at = head.find(digits, colon)
        end = at + len(digits)
        if name_at < 0 or head[colon + 1 : at].strip(b" ") or head[end : end + 2] != b"\r\n":
            return None
        return cls(head[:at], head[end:], exchange)

    def match(self, connection: Connection, data: bytes) -> Exchange | None:
        """The request in `data`, let in; None when it is another, incomplete, or to be refused."""
        at = self._before_bytes
        key = self._key
        end = data.find(b"\r", at, at + _LENGTH_DIGITS)
        body_at = end + self._after_bytes
        if key is None:
            if end < 0 or not data.startswith(self._before) or not data.startswith(self._after, end):
                return None
        # A proxy may mix its clients on one connection, so a key is never compared byte by byte.
        elif not compare_digest(data[:at], self._before) or not compare_digest(
            data[end:body_at], self._after
        ):
            return None
        digits = data[at:end]
        body = data[body_at:]
        edge = connection.edge
        if not digits.isdigit() or len(body) != int(digits) or not body or len(body) > edge.max_body_bytes:
            return None
        exchange = Exchange(connection, self._method, self._target, self._headers)
        exchange.body = body
        exchange.complete = True
        exchange.route = self._route
        exchange.name = self._name
        exchange.params = self._params
        if key is not None:
            most = edge.settings.max_inflight_per_key
            if most and key.inflight >= most:
                return None
            exchange.key = key
            exchange.take_place()
        return exchange

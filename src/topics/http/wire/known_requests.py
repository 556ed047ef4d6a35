"""Clients that keep their connections send the same heads again and again.

A head that was parsed, routed and let in once is remembered with all that came of it. The same bytes again
need neither parsing nor routing nor a look at the key. An idempotency key, which is another one each time, is
left out of what is remembered.
"""

from sys import intern
from typing import ClassVar

from topics.http.wire.answer_heads import JSON
from topics.http.wire.request import Request
from topics.http.wire.routing import Convoys, Route
from topics.log import SMALL_BODY_BYTES
from topics.values import accelerator

# Headers whose requests the parser has to see each time.
_UNREPEATABLE = (b"expect", b"upgrade", b"transfer-encoding")
_MOST_HEADS = 4096
_MOST_HEAD_BYTES = 1024
END = b"\r\n\r\n"
# Asked by byte value: four times faster than by one-byte string.
_QUERY = ord("?")
# The idempotency key as most clients send it; any other is left to the parser.
KEY_HEADER = b"idempotency-key"
_KEY_LINES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")
_KEY_AT = len(_KEY_LINES[0])


class KnownRequest:
    """Everything about a request but its body.

    To a connection whose request travels in a convoy, this is the request under way.
    """

    __slots__ = (
        "body_bytes",
        "convoys",
        "headers",
        "is_json",
        "key",
        "method",
        "name",
        "params",
        "plain_bytes",
        "route",
        "target",
    )

    complete: ClassVar[bool] = True
    answered: ClassVar[bool] = False
    parked: ClassVar[bool] = False
    refusal: ClassVar[None] = None

    def __init__(self, like: Request, route: Route) -> None:
        self.body_bytes = like.received
        self.headers = {name: value for name, value in like.headers.items() if name != KEY_HEADER}
        self.key = like.key
        self.method = like.method_bytes
        # Equal names are one object: those who group by them need not look closer.
        self.name = intern(like.name)
        self.params = like.params
        self.route = route
        self.target = like.target
        # Nothing about the body has to be asked before its handler gets it.
        plain_json = self.headers.get(b"content-type") == JSON and b"content-encoding" not in self.headers
        self.is_json = not route.is_async and plain_json and route.takes_body
        self.convoys: Convoys | None = None
        # How many bytes the body has, if it travels and is not counted as somebody's; -1 for all others.
        self.plain_bytes = -1

    def travel(self) -> None:
        """Requests like this one need not be looked at one by one."""
        if self.body_bytes <= SMALL_BODY_BYTES and self.is_json and _QUERY not in self.target:
            self.convoys = self.route.convoys
            if self.convoys is not None and self.key is None:
                self.plain_bytes = self.body_bytes


class KnownRequests:
    """Found by hash. An attacker cannot feel its way to a key here: bytes are compared only where two hashes
    agree, and the hash is keyed with a secret of this process."""

    __slots__ = ("_key_line_at", "get", "heads")

    def __init__(self) -> None:
        self.heads: dict[bytes, KnownRequest] = {}
        # Where the line of the key was in the last head that had one: often it is there again.
        self._key_line_at = 0
        self.get = self.heads.get

    def forget(self) -> None:
        """What keys may do has changed."""
        # Another dictionary: nothing is ever taken from one, and whoever keeps it relies on that.
        self.heads = {}
        self.get = self.heads.get

    def find_keyed(self, head: bytes) -> tuple[KnownRequest | None, bytes]:
        """For a head that is not known as it is: without its idempotency key it may be; and that key."""
        parts = self._without_key(head)
        return (None, b"") if parts is None else (self.get(parts[0]), parts[1])

    def _without_key(self, head: bytes) -> tuple[bytes, bytes] | None:
        """The head without the line of the idempotency key, and that key; None if none is to be seen.

        Nor if the parser might refuse the key, or see it otherwise: that is left to it.
        """
        if accelerator.native is not None:
            return accelerator.native.key_of_head(head)  # type: ignore[no-any-return]
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

    def remember(self, request: Request, data: bytes, *, is_noted: bool) -> None:
        """`data` is exactly this request; not all kinds are worth it, or may be taken without parsing.

        `is_noted`: every request is looked at when it is answered, and so has to be an exchange.
        """
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
        self.heads[head] = known = KnownRequest(request, route)
        if not is_noted:
            known.travel()

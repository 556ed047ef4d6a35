"""What a request body must be before a handler sees it: of a known type, decoded, and not too large."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from topics.http.admission import too_large
from topics.http.heads import ARROW
from topics.http.routing import Body
from topics.values.errors import ApiError, invalid
from topics.values.settings import MIB

if TYPE_CHECKING:
    from topics.http.exchange import Exchange
    from topics.http.routing import Route

# Decoding more than this would hold up everybody else, so it is left to a thread.
INLINE_BYTES = MIB
_GZIP = 16 + zlib.MAX_WBITS
_JSON = b"application/json"


def is_compressed(exchange: Exchange) -> bool:
    return exchange.headers.get(b"content-encoding", b"").strip().lower() == b"gzip"


def check_type(route: Route, exchange: Exchange) -> None:
    """Raises for a body this route does not take. Expects the body as the client sent it."""
    empty = not exchange.body
    if empty and route.body is Body.OPTIONAL:
        return
    if empty and route.body is Body.NEVER_EMPTY:
        raise invalid("the body must not be empty")
    content_type = exchange.headers.get(b"content-type")
    if content_type != _JSON:
        content_type = (content_type or b"").strip().lower()
        wanted = ARROW if route.arrow else _JSON
        if not content_type.startswith((_JSON, wanted)):
            raise ApiError("unsupported_media_type", f"the body must be declared as {wanted.decode()}")
    encoding = exchange.headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity", b"gzip"):
        raise ApiError("unsupported_media_type", "the only content encoding understood is gzip")


class Gunzip:
    """Decodes step by step and stops at the ceiling, so a small body cannot unfold without bound."""

    def __init__(self, data: bytes, max_bytes: int) -> None:
        self._data = data
        self._max_bytes = max_bytes
        self._total = 0
        self._parts: list[bytes] = []
        self._member = zlib.decompressobj(_GZIP)

    def step(self, step_bytes: int = INLINE_BYTES) -> bool:
        """Decode up to `step_bytes` more; True when all is done."""
        room = min(step_bytes, self._max_bytes + 1 - self._total)
        try:
            while room > 0:
                part = self._member.decompress(self._data, room)
                room -= len(part)
                self._total += len(part)
                self._parts.append(part)
                if self._total > self._max_bytes:
                    raise too_large(self._max_bytes)
                if self._member.eof:
                    self._data = self._member.unused_data
                    if not self._data:
                        return True
                    self._member = zlib.decompressobj(_GZIP)
                else:
                    self._data = self._member.unconsumed_tail
                    if not self._data and not part:
                        raise invalid("the gzip body is cut short")
        except zlib.error:
            raise invalid("the body is not valid gzip") from None
        return False

    def finish(self) -> bytes:
        while not self.step():
            pass
        return self.result()

    def result(self) -> bytes:
        return b"".join(self._parts)

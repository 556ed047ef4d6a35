"""What a request body must be before a handler sees it: of a known type, decoded, and not too large."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from topics.http.door.admission import too_large
from topics.http.wire.answer_heads import ARROW
from topics.http.wire.routing import Body
from topics.values.errors import ApiError, invalid
from topics.values.settings import MIB

if TYPE_CHECKING:
    from topics.http.wire.exchange import Exchange
    from topics.http.wire.routing import Route

# Decoding more than this would hold up everybody else, so it is left to a thread.
INLINE_BYTES = MIB
# What a member leaves over is copied, so it is handed over in pieces: thousands of members must not copy all.
_PIECE_BYTES = 64 * 1024
# Who packs in blocks makes one for every 64 KiB. An empty one is 20 bytes to send, and no less work here.
MAX_MEMBERS = 4096
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
        self._data = memoryview(data)
        self._at = 0
        self._piece: bytes | memoryview = b""
        self._max_bytes = max_bytes
        self._total = 0
        self._parts: list[bytes] = []
        self._members = 1
        self._member = zlib.decompressobj(_GZIP)

    def step(self, step_bytes: int = INLINE_BYTES) -> bool:
        """Decode up to `step_bytes` more; True when all is done."""
        room = min(step_bytes, self._max_bytes + 1 - self._total)
        try:
            while room > 0:
                if not self._piece:
                    self._piece = self._data[self._at : self._at + _PIECE_BYTES]
                    self._at += len(self._piece)
                part = self._member.decompress(self._piece, room)
                room -= len(part)
                self._total += len(part)
                self._parts.append(part)
                if self._total > self._max_bytes:
                    raise too_large(self._max_bytes)
                is_last = self._at == len(self._data)
                if self._member.eof:
                    self._piece = self._member.unused_data
                    if is_last and not self._piece:
                        return True
                    self._next_member()
                else:
                    self._piece = self._member.unconsumed_tail
                    if is_last and not self._piece and not part:
                        raise invalid("the gzip body is cut short")
        except zlib.error:
            raise invalid("the body is not valid gzip") from None
        return False

    def _next_member(self) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise invalid(f"the gzip body has more than {MAX_MEMBERS} members")
        self._member = zlib.decompressobj(_GZIP)

    def finish(self) -> bytes:
        while not self.step():
            pass
        return self.result()

    def result(self) -> bytes:
        return b"".join(self._parts)

"""Bodies before a handler sees them: unpacked if they are compressed, and shrunk if they are large.

Most requests say little. What is more than a megabyte of it is refused, unless it is white space.
"""

import asyncio
import zlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from topics.codec import LARGE_BYTES, compact_in_steps
from topics.core import MIB, UNDECODABLE, ApiError, UnknownFields, invalid
from topics.http.admission.admit import require_type, too_large

if TYPE_CHECKING:
    from topics.http.request import Request

# Decoding more than this would hold up all other requests, so it is left to a thread.
INLINE_BYTES = MIB
# The rest after a member is copied, so the input is cut: thousands of members must not copy all of it.
_PIECE_BYTES = 64 * 1024
# Clients that pack in blocks make one for every 64 KiB. An empty one is 20 bytes to send, and no less work.
MAX_MEMBERS = 4096
_GZIP = 16 + zlib.MAX_WBITS
_CHANGE_NOTHING = (b"GET", b"HEAD", b"OPTIONS")
_names = msgspec.json.Decoder(dict[str, Raw]).decode


def is_compressed(request: "Request") -> bool:
    return request.headers.get(b"content-encoding", b"").strip().lower() == b"gzip"


def refuse_unread(request: "Request") -> None:
    """A body that its route does not look at: whatever it asks for would be passed over in silence.

    So would a form, which is what `curl -d dry_run=true` sends, and what any page on the web may send.
    """
    is_harmless = request.method_bytes in _CHANGE_NOTHING
    if not is_harmless:
        require_type(request)
    try:
        names = _names(request.body)
    except UNDECODABLE:
        if is_harmless:
            return
        raise invalid("this path takes no body, and this one is not a JSON object") from None
    if names:
        request.note(UnknownFields.among(names, ()))


async def shrink(request: "Request") -> None:
    """A large body of a request that cannot need one: it is not decoded to find out what is wrong with it."""
    route = request.route
    assert route is not None

    def too_much() -> ApiError:
        what = f"a body of this path has at most {LARGE_BYTES} bytes, white space apart"
        return ApiError(route.too_large, what, {"max": LARGE_BYTES})

    if not route.takes_body and request.method_bytes in _CHANGE_NOTHING:
        request.replace_body(b"")  # neither looked at nor able to do harm
        return
    if not route.takes_body:
        require_type(request)
    request.replace_body(await asyncio.to_thread(compact_in_steps, request.body, LARGE_BYTES, too_much))
    if not route.takes_body:
        refuse_unread(request)


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

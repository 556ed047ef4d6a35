"""Server-sent events: how a frame looks, and the comment that keeps an idle stream alive."""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

import msgspec

from topics.http.response_heads import EVENTS, HeaderList

CONTENT_TYPE = EVENTS
HEADERS: HeaderList = [(b"Cache-Control", b"no-store"), (b"X-Accel-Buffering", b"no")]
RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"
# What is advised to a client that was cut off because it did not read.
RETRY_AFTER_MS = 2_000
# The event of the last words; a browser has an event of its own that is called so, hence the other name.
ERROR, CLOSING = "error", "closing"
REVOKED = "the key of this stream was removed"


def frame(event: str, data: bytes, event_id: bytes) -> bytes:
    """`data` must be a single line, which compact JSON is."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, event.encode(), data)


def frame_without_id(event: str, data: bytes) -> bytes:
    """What moves no cursor."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


def last_words(event: str = ERROR, **fields: Any) -> bytes:
    """Why a stream ends."""
    return frame_without_id(event, msgspec.json.encode(fields))


def shutdown_frame(event: str = ERROR) -> bytes:
    return last_words(event, code="server_shutting_down", message="the server is shutting down")


def revoked_frame(event: str = ERROR) -> bytes:
    """To a client whose key is none any more."""
    return last_words(event, code=401, error="unauthorized", message=REVOKED)


def slow_frame(topics: list[str], event: str = ERROR) -> bytes:
    """To a client that does not read."""
    return last_words(event, code=429, error="slow_consumer", retry_after_ms=RETRY_AFTER_MS, topics=topics)


class Beating(Protocol):
    """A stream that wants a sign of life when nothing else was sent for a while."""

    heartbeat_s: float
    # On the clock of the loop.
    last_sent: float

    def beat(self) -> None: ...


class Heartbeats:
    """One timer for all streams. A stream that was busy is looked at again when it may have become idle."""

    def __init__(self) -> None:
        # [when to look, tie-breaker, stream]; a cancelled entry has lost its stream.
        self._entries: list[list[Any]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def add(self, stream: Beating) -> list[Any]:
        """Returns what `cancel` needs."""
        entry = [stream.last_sent + stream.heartbeat_s, next(self._numbers), stream]
        heappush(self._entries, entry)
        self._arm()
        return entry

    def cancel(self, entry: list[Any]) -> None:
        entry[2] = None
        while self._entries and self._entries[0][2] is None:
            heappop(self._entries)
        if not self._entries and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._entries[0][0]
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        entries = self._entries
        while entries and entries[0][0] <= now:
            entry = heappop(entries)
            stream: Beating | None = entry[2]
            if stream is None:
                continue
            entry[0] = stream.last_sent + stream.heartbeat_s
            if entry[0] <= now:
                stream.beat()
                stream.last_sent = now
                entry[0] = now + stream.heartbeat_s
            heappush(entries, entry)
        if entries:
            self._arm()

"""Server-sent events: frames, and the life of a stream of them."""

import asyncio
from typing import Any

import msgspec

from topics.http.admission.auth import ApiKey
from topics.http.open_streams import REVOKED, SHUTTING_DOWN, OpenStreams
from topics.http.response_heads import EVENTS, HeaderList
from topics.http.stream import BackpressuredStream, Stream

CONTENT_TYPE = EVENTS
HEADERS: HeaderList = [(b"Cache-Control", b"no-store"), (b"X-Accel-Buffering", b"no")]
RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"
# The advice to a client that was cut off because it did not read.
RETRY_AFTER_MS = 2_000
# The event of the last words; a browser has an event of its own that is called so, hence the other name.
ERROR, CLOSING = "error", "closing"


# Id, event and data, which must be a single line: compact JSON is one.
FRAME = b"id: %b\nevent: %b\ndata: %b\n\n"


def frame_without_id(event: str, data: bytes) -> bytes:
    """Return a frame that moves no cursor."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


class EventStream(BackpressuredStream):
    """A stream of server-sent events. A comment keeps it alive while nothing else is sent."""

    __slots__ = ("_closing", "_loop", "_streams", "heartbeat_s", "key", "last_sent")

    _held: Stream

    def __init__(
        self, streams: OpenStreams, held: Stream, key: ApiKey | None, heartbeat_s: float, closing: str = ERROR
    ) -> None:
        """`closing`: the event that says why the stream ends."""
        super().__init__(held, streams.patience_s)
        self._streams = streams
        self._closing = closing
        self._loop = asyncio.get_running_loop()
        self.key = key
        self.heartbeat_s = heartbeat_s
        self.last_sent = self._loop.time()

    def start(self) -> None:
        self._streams.add(self)
        self._held.write(RETRY)
        self.begin()
        self._held.on_close(self.on_closed)

    def begin(self) -> None:
        """Subscribe to what is delivered."""
        raise NotImplementedError

    def beat(self) -> None:
        if not self.stalled:
            self.write(HEARTBEAT)

    def end(self, last_words: bytes) -> None:
        self._held.write(last_words)
        self.hang_up()

    def end_with(self, **fields: Any) -> None:
        """End the stream with an event that says why."""
        self.end(frame_without_id(self._closing, msgspec.json.encode(fields)))

    def end_slow(self, topics: list[str]) -> None:
        """End the stream of a client that does not read."""
        self.end_with(code=429, error="slow_consumer", retry_after_ms=RETRY_AFTER_MS, topics=topics)

    def shut_down(self) -> None:
        self.end_with(code="server_shutting_down", message=SHUTTING_DOWN)

    def revoke(self) -> None:
        self.end_with(code=401, error="unauthorized", message=REVOKED)

    def on_closed(self) -> None:
        super().on_closed()
        self._streams.remove(self)

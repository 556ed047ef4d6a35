"""All event streams, work streams and WebSockets that are open: their places, heartbeats and ends."""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

import msgspec

from topics.core import Settings, limit_reached
from topics.http.admission.auth import ApiKey, unauthorized

# A client that takes nothing for this long is told so and cut off.
PATIENCE_S = 30.0
# A socket whose client says nothing for so long is asked whether it is there, and has as long to answer.
PING_S = 20.0


REVOKED = "the key of this stream was removed"
SHUTTING_DOWN = "the server is shutting down"
_encode = msgspec.json.encode


def error_message(
    code: str, message: str, detail: dict[str, Any] | None = None, request_id: bytes = b"null"
) -> bytes:
    return b'{"op":"error","request_id":%b,"code":%b,"message":%b%b}' % (
        request_id,
        _encode(code),
        _encode(message),
        b',"detail":%b' % _encode(detail) if detail else b"",
    )


class Beating(Protocol):
    """A stream that wants a sign of life when nothing else was sent for a while."""

    heartbeat_s: float
    # On the clock of the loop.
    last_sent: float

    def beat(self) -> None: ...


class Held(Beating, Protocol):
    """A stream in the registry."""

    key: ApiKey | None

    def shut_down(self) -> None:
        """End it, because the server stops."""

    def revoke(self) -> None:
        """End it, because its key was removed."""


class Heartbeats:
    """One timer for all streams. A stream that was busy is looked at again when it may have become idle."""

    def __init__(self) -> None:
        # [when to look, tie-breaker, stream]; a cancelled entry has lost its stream.
        self._entries: list[list[Any]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._entries)

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


class OpenStreams:
    """Streams and sockets share the places that the settings name. A limit of 0 means none.

    A place is taken before the stream is opened, because a refusal is an ordinary reply.
    """

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_sse_connections
        self._most_per_key = settings.max_sse_connections_per_key
        self._by_key: dict[ApiKey, int] = {}
        # Places that are taken.
        self.taken = 0
        self.heartbeats = Heartbeats()
        # Each with what cancels its heartbeat.
        self.open: dict[Held, list[Any]] = {}
        self.patience_s = PATIENCE_S
        self.ping_s = PING_S

    def take_place(self, key: ApiKey | None) -> None:
        """Take a place for one stream. `add` and `remove` are called for that stream next."""
        if key is not None and key.revoked:
            raise unauthorized()  # while the request was on its way
        if self._most and self.taken >= self._most:
            raise limit_reached("max_sse_connections", self._most)
        if key is not None:
            of_key = self._by_key.get(key, 0)
            if self._most_per_key and of_key >= self._most_per_key:
                raise limit_reached("max_sse_connections_per_key", self._most_per_key)
            self._by_key[key] = of_key + 1
        self.taken += 1

    def add(self, stream: Held) -> None:
        self.open[stream] = self.heartbeats.add(stream)

    def remove(self, stream: Held) -> None:
        """Forget a stream that has closed, and give its place back."""
        self.heartbeats.cancel(self.open.pop(stream))
        self.taken -= 1
        key = stream.key
        if key is not None:
            left = self._by_key.pop(key) - 1
            if left:
                self._by_key[key] = left

    def shut_down(self) -> None:
        """End all streams: the server stops."""
        for stream in tuple(self.open):
            stream.shut_down()

    def end_revoked(self) -> None:
        """End the streams of keys that were removed."""
        for stream in tuple(self.open):
            if stream.key is not None and stream.key.revoked:
                stream.revoke()

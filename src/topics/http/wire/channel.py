"""The lower half of a connection: writing, pressure in both directions, and being taken over by a stream."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.http.door.request_room import RequestRoom
from topics.http.wire.answer_heads import STATUS_LINES, HeaderList
from topics.http.wire.compression import INLINE_BYTES
from topics.http.wire.context import WireContext
from topics.http.wire.crowd import OUTSIDE

if TYPE_CHECKING:
    from topics.http.wire.compression import StreamEncoder

logger = logging.getLogger("topics.http")

# What becomes of the bytes that arrive:
HTTP = 0  # they are requests
DEAF = 1  # ignored, but answers are still owed
LINGER = 2  # ignored, so that the client gets to read our last answer
STREAM = 3  # ignored, while a stream is open
RAW = 4  # given to the protocol that took the connection over
CLOSED = 5

# What a request of HTTP/2 wants to speak instead, under a name that no header of HTTP/1.1 can have.
PROTOCOL, WEBSOCKET = b":protocol", b"websocket"

# What one client sends in one breath is looked at for so long; then others have their turn.
TURN_S = 0.01
# Above this, a second system call costs less than copying the body behind its head.
_COPY_BYTES = 64 * 1024


def shown_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Channel(asyncio.Protocol):
    __slots__ = (
        "_closers",
        "_drain_waiters",
        "_early",
        "_half_closed",
        "_ignored_bytes",
        "_reading_paused",
        "_receiver",
        "_write_paused",
        "context",
        "descriptor",
        "mode",
        "stalled_since",
        "stalled_state",
        "transport",
    )

    transport: asyncio.Transport
    # Of the answer that lets another protocol begin.
    raw_status = 101

    def __init__(self, context: WireContext) -> None:
        self.context = context
        self.mode = HTTP
        self.descriptor = OUTSIDE
        self._write_paused = False
        self._reading_paused = False
        # The client has ended its side of the connection.
        self._half_closed = False
        self._ignored_bytes = 0
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._closers: list[Callable[[], None]] = []
        self._receiver: Callable[[bytes], None] | None = None
        # Bytes of another protocol that came before their receiver.
        self._early = b""
        # Kept by the timeouts.
        self.stalled_state: tuple[int, int] = (-1, -1)
        self.stalled_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        context, limits = self.context, self.context.limits
        if context.connection_limit.is_full(context.open_connections):
            self.mode = CLOSED
            context.connection_limit.turn_away(self.transport, context.heads)
            return
        self.transport.set_write_buffer_limits(high=limits.write_high_bytes, low=limits.write_low_bytes)
        self.context.connections.add(self)
        self.context.request_log.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.mode = CLOSED
        self.leave_crowd()
        self.context.connections.discard(self)
        self.context.streams.discard(self)
        self._receiver = None
        self._wake_drained()
        closers, self._closers = self._closers, []
        if closers:
            self.context.partings.add(closers)

    @property
    def busy(self) -> bool:
        raise NotImplementedError

    def progress(self) -> tuple[int, int]:
        """Which timeout applies, and a number that changes while things move."""
        raise NotImplementedError

    def peer(self) -> str | None:
        """The client's address."""
        address = self.transport.get_extra_info("peername")
        if not address:
            return None
        return shown_address(*address[:2])

    def reconsider(self) -> None:
        """Room to write may have come or gone."""
        raise NotImplementedError

    def write_answer(self, head: bytes, body: bytes) -> None:
        head += b"%d\r\n\r\n" % len(body)
        if len(body) < _COPY_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    def ignore(self, data: bytes) -> None:
        """Bytes that are not requests."""
        if self.mode == RAW:
            if self._receiver is None:
                self._early += data
            else:
                self._receiver(data)
        elif self.mode == LINGER:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > self.context.limits.linger_bytes:
                self.transport.abort()

    def end(self, *, unread: bool) -> None:
        """No more answers. With unread input, closing at once would reset the connection."""
        self.leave_crowd()
        if self.transport.is_closing():
            self.mode = CLOSED
        elif unread and not self._half_closed:
            self.mode = LINGER
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.resume_reading()
        else:
            self.mode = CLOSED
            self.transport.close()

    # Pressure

    def pause_writing(self) -> None:
        self._write_paused = True
        self.reconsider()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_drained()
        self.reconsider()

    def pause_reading(self) -> None:
        if not (self._reading_paused or self._half_closed or self.transport.is_closing()):
            self._reading_paused = True
            self.leave_crowd()
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and not (self._half_closed or self.transport.is_closing()):
            self._reading_paused = False
            self.transport.resume_reading()

    def be_read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """What comes next is for this protocol. How to read for it is asked only when reading begins."""
        self.leave_crowd()
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        if not self._reading_paused:
            self.transport.resume_reading()

    def leave_crowd(self) -> None:
        """The transport reads its socket itself, as it did at first."""
        crowd = self.context.crowd
        if self.descriptor >= 0 and crowd is not None:
            crowd.dismiss(self)
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def buffered(self) -> int:
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    @property
    def choked(self) -> bool:
        """The client does not keep up: more is buffered than it should have waiting."""
        return self._write_paused and not self.transport.is_closing()

    async def drained(self) -> None:
        if self._write_paused and self.mode != CLOSED:
            waiter = self.context.loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def _wake_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Streams

    def leave_unheard(self) -> None:
        """An endless stream to a client that has ended its side: nothing would tell us that it has gone."""
        if self._half_closed:
            self.transport.close()

    def let_go(self) -> None:
        """The client of a stream has ended its side: what it does not read is not kept for it for ever."""
        if self.transport.get_write_buffer_size():
            self.context.loop.call_later(self.context.limits.linger_s, self.transport.abort)

    def hand_over(self, mode: int) -> bool:
        """From here on the connection belongs to a stream. False when the client has gone."""
        if self.mode > DEAF or self.transport.is_closing():
            # Nothing that it sent behind this request is looked at any more.
            self.mode = CLOSED
            return False
        self.mode = mode
        self.leave_crowd()
        self.context.connections.discard(self)
        self.context.streams.add(self)
        # A stream's socket is always read: that is how we learn that its client has gone.
        self.resume_reading()
        return True

    def begin_stream(self, content_type: bytes, headers: HeaderList | None, *, chunked: bool) -> None:
        """The head of an answer whose length is not known."""
        heads = self.context.heads
        self.transport.write(heads.unbounded(content_type, headers, chunked=chunked, connection=b"close"))

    def begin_raw(self, headers: HeaderList) -> None:
        """The answer behind which WebSocket is spoken."""
        lines = [b"%b: %b\r\n" % header for header in headers]
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        self.transport.write(b"".join((STATUS_LINES[self.raw_status], upgrade, *lines, b"\r\n")))

    def wind_down(self) -> None:
        """The server stops: what it does not have to do any more, the client is told if it can be."""

    def give_up(self) -> None:
        """The client has taken too long with whatever it is doing."""
        self.transport.abort()

    def add_closer(self, callback: Callable[[], None]) -> bool:
        """False when the connection has ended already."""
        if self.mode == CLOSED:
            return False
        self._closers.append(callback)
        return True

    def set_receiver(self, receiver: Callable[[bytes], None]) -> None:
        self._receiver = receiver
        early, self._early = self._early, b""
        if early:
            receiver(early)


class _Held:
    """What a stream and an upgraded connection have in common. Without a connection, it is closed."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Channel | None) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection is None or self._connection.transport.is_closing()

    def buffered(self) -> int:
        """Bytes written that the client has not taken yet."""
        return 0 if self._connection is None else self._connection.buffered()

    @property
    def choked(self) -> bool:
        """Too much is buffered to write more now; `drain` waits for the end of that."""
        return self._connection is not None and self._connection.choked

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the connection ends, by our doing or the client's."""
        if self._connection is None or not self._connection.add_closer(callback):
            callback()

    async def drain(self) -> None:
        """Wait until the client has taken enough, or has gone."""
        if self._connection is not None:
            await self._connection.drained()

    def abort(self) -> None:
        """End the connection without waiting for what is still buffered."""
        if self._connection is not None:
            self._connection.transport.abort()


class Stream(_Held):
    """A body sent piece by piece. It ends with its connection: one that streamed for hours is not reused."""

    __slots__ = ("_chunked", "_encoder")

    def __init__(
        self,
        connection: Channel | None,
        content_type: bytes,
        headers: HeaderList | None,
        *,
        chunked: bool,
        encoder: "StreamEncoder | None" = None,
    ) -> None:
        super().__init__(connection)
        self._chunked = chunked
        self._encoder = encoder
        if connection is not None:
            connection.begin_stream(content_type, headers, chunked=chunked)

    def write(self, data: bytes) -> None:
        """Goes out at once. An empty piece would end a chunked body, so it is left out."""
        connection = self._connection
        if not data or connection is None or connection.transport.is_closing():
            return
        if self._encoder is not None:
            data = self._encoder.encode(data)
        connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def write_and_drain(self, data: bytes) -> None:
        """Only the caller writes, and waits for the client. What takes long to compress holds nobody up."""
        encoder = self._encoder
        if encoder is None or len(data) <= INLINE_BYTES:
            self.write(data)
        elif not self.closed:
            data = await asyncio.to_thread(encoder.encode, data)
            self._encoder = None
            self.write(data)
            self._encoder = encoder
        await self.drain()

    def close(self) -> None:
        """End the body properly; what was written before still reaches a client that reads."""
        connection = self._connection
        if connection is None or connection.transport.is_closing():
            return
        if self._encoder is not None:
            last, self._encoder = self._encoder.end(), None
            self.write(last)
        if self._chunked:
            connection.transport.write(b"0\r\n\r\n")
        connection.transport.close()


class Upgraded(_Held):
    """The bare connection, for a protocol other than HTTP."""

    __slots__ = ("headers",)

    def __init__(self, connection: Channel | None, headers: dict[bytes, bytes]) -> None:
        super().__init__(connection)
        self.headers = headers

    @property
    def request_room(self) -> RequestRoom:
        """What it receives counts like the bodies of requests."""
        return RequestRoom(0) if self._connection is None else self._connection.context.request_room

    def begin(self, headers: HeaderList) -> None:
        if not self.closed:
            assert self._connection is not None
            self._connection.begin_raw(headers)

    def write(self, data: bytes) -> None:
        connection = self._connection
        if data and connection is not None and not connection.transport.is_closing():
            connection.transport.write(data)

    def set_receiver(self, receiver: Callable[[bytes], None]) -> None:
        """Gets every byte from here on, and first those that came right behind the request."""
        if self._connection is not None:
            self._connection.set_receiver(receiver)

    def pause_reading(self) -> None:
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        if self._connection is not None:
            self._connection.resume_reading()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.close()

"""A connection that is fed with records or jobs, and left alone while its client does not read."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from topics.http.admission.limits import RequestRoom
from topics.http.compression import INLINE_BYTES
from topics.http.response_heads import HeaderList

if TYPE_CHECKING:
    from topics.http.compression import StreamEncoder

logger = logging.getLogger("topics.http")

# Close callbacks take at most this much of one turn of the event loop.
CLOSE_CALLBACKS_S = 0.01


class StreamOutput(Protocol):
    """Where the bytes of a stream go: a transport, or a stream of HTTP/2."""

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool: ...

    def get_write_buffer_size(self) -> int: ...

    def close(self) -> None:
        """Close after everything is sent that was written before."""

    def abort(self) -> None:
        """Close at once."""


class UpgradeChannel(Protocol):
    """The part of a connection, or of a stream of HTTP/2, that an upgraded protocol needs."""

    def begin_upgrade(self, headers: HeaderList) -> None:
        """Send the reply that accepts the upgrade."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class CloseCallbacks:
    """Runs the callbacks of connections that have closed.

    A thousand connections may close at once, each with hundreds of subscriptions. The callbacks that do not
    fit into one turn of the event loop run in the next one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._spent_s = 0.0
        self._is_scheduled = False

    def run(self, callbacks: Iterable[Callable[[], None]]) -> None:
        self._waiting.extend(callbacks)
        self._run_for(CLOSE_CALLBACKS_S)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def finish(self) -> None:
        """Run all that wait: the server stops."""
        self._run_for(inf)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._spent_s = 0.0
        if self._waiting:
            self.run(())

    def _run_for(self, until_s: float) -> None:
        began_s = perf_counter() - self._spent_s
        while self._waiting and perf_counter() - began_s < until_s:
            callback = self._waiting.popleft()
            try:
                callback()
            except Exception:
                logger.exception("a close callback failed")
        self._spent_s = perf_counter() - began_s


class OpenStream:
    """The part that a streamed body and an upgraded protocol share.

    Without an output it is closed from the start: the client has gone before it began.
    """

    __slots__ = ("_drain_waiters", "_is_lost", "_on_close", "_output", "is_paused")

    def __init__(self, output: StreamOutput | None) -> None:
        self._output = output
        self._on_close: list[Callable[[], None]] = []
        self._drain_waiters: list[asyncio.Future[None]] = []
        # The client does not keep up with what is written.
        self.is_paused = False
        self._is_lost = output is None

    @property
    def closed(self) -> bool:
        return self._output is None or self._output.is_closing()

    def buffered(self) -> int:
        """Return the number of bytes written that the client has not taken yet."""
        output = self._output
        return 0 if output is None or output.is_closing() else output.get_write_buffer_size()

    @property
    def choked(self) -> bool:
        """Too much is buffered to write more now; `drain` waits until that is over."""
        return self.is_paused and not self.closed

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the connection ends, for whatever reason."""
        if self._is_lost:
            callback()
        else:
            self._on_close.append(callback)

    async def drain(self) -> None:
        """Wait until the client has taken enough, or has gone."""
        if self.is_paused and not self._is_lost:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def abort(self) -> None:
        """End the connection without waiting for what is still buffered."""
        if self._output is not None:
            self._output.abort()

    # Called by the connection.

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._wake()

    def connection_lost(self, close_callbacks: CloseCallbacks) -> None:
        self._is_lost = True
        self._wake()
        callbacks, self._on_close = self._on_close, []
        if callbacks:
            close_callbacks.run(callbacks)

    def _wake(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Stream(OpenStream):
    """A body sent piece by piece. Its connection ends with it and is not reused."""

    __slots__ = ("_chunked", "_encoder")

    def __init__(
        self, output: StreamOutput | None, *, chunked: bool, encoder: "StreamEncoder | None" = None
    ) -> None:
        super().__init__(output)
        self._chunked = chunked
        self._encoder = encoder

    def write(self, data: bytes) -> None:
        """Send a piece at once. An empty piece is left out: it would end a chunked body."""
        output = self._output
        if not data or output is None or output.is_closing():
            return
        if self._encoder is not None:
            data = self._encoder.encode(data)
        output.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def write_and_drain(self, data: bytes) -> None:
        """Send a piece and wait for the client. Nobody else may write meanwhile.

        A piece that takes long to compress is compressed on a thread.
        """
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
        """End the body; a client that reads still gets everything that was written before."""
        output = self._output
        if output is None or output.is_closing():
            return
        if self._encoder is not None:
            last, self._encoder = self._encoder.end(), None
            self.write(last)
        if self._chunked:
            output.write(b"0\r\n\r\n")
        output.close()


class Upgraded(OpenStream):
    """A connection on which another protocol than HTTP is spoken."""

    __slots__ = ("_channel", "_early", "_receiver", "headers", "request_room")

    def __init__(
        self,
        output: StreamOutput | None,
        channel: UpgradeChannel | None,
        headers: dict[bytes, bytes],
        request_room: RequestRoom,
    ) -> None:
        """`request_room`: the messages it receives take room there, like the bodies of requests."""
        super().__init__(output)
        self._channel = channel
        self._receiver: Callable[[bytes], None] | None = None
        # The bytes that came before the receiver was set.
        self._early = b""
        self.headers = headers
        self.request_room = request_room

    def begin(self, headers: HeaderList) -> None:
        """Accept the upgrade."""
        if self._channel is not None and not self.closed:
            self._channel.begin_upgrade(headers)

    def write(self, data: bytes) -> None:
        output = self._output
        if data and output is not None and not output.is_closing():
            output.write(data)

    def set_receiver(self, receiver: Callable[[bytes], None]) -> None:
        """Pass on every byte that follows the request, also those that have come already."""
        if self._channel is None:
            return
        self._receiver = receiver
        early, self._early = self._early, b""
        if early:
            receiver(early)

    def pause_reading(self) -> None:
        if self._channel is not None:
            self._channel.pause_reading()

    def resume_reading(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()

    def close(self) -> None:
        if self._output is not None:
            self._output.close()

    # Called by the connection.

    def receive(self, data: bytes) -> None:
        if self._receiver is None:
            self._early += data
        else:
            self._receiver(data)

    def connection_lost(self, close_callbacks: CloseCallbacks) -> None:
        self._receiver = None
        super().connection_lost(close_callbacks)


# How long a client may take to read our last words before the connection is torn down.
FAREWELL_S = 5.0
# The time for a client that was cut off. It did not read before, and may find out why when it does.
EXPLANATION_S = 15.0


class BackpressuredStream:
    """A stream or a WebSocket that is written to only while its client reads.

    A client that does not read for a while is told so, and disconnected.
    """

    __slots__ = ("_farewell", "_held", "_patience_s", "_waiting", "stalled")

    def __init__(self, held: Stream | Upgraded, patience_s: float | None) -> None:
        """`patience_s`: how long a client may read nothing; None for any time."""
        self._held = held
        self._patience_s = patience_s
        # Only a client that does not keep up costs a task.
        self._waiting: asyncio.Task[None] | None = None
        self._farewell: asyncio.TimerHandle | None = None
        # Nothing more is to be written now.
        self.stalled = False

    def give_up(self) -> None:
        """Handle a client that has not read for too long."""

    def on_pressure(self) -> None:
        """Handle a client that does not keep up."""

    def on_relief(self) -> None:
        """Resume after the client has read what was sent."""

    def release(self) -> None:
        """Deliver nothing more, and leave no subscription behind."""
        self.stalled = True

    def write(self, data: bytes) -> None:
        held = self._held
        held.write(data)
        if held.is_paused and not self.stalled and held.choked:
            self.stalled = True
            self.on_pressure()
            self._waiting = asyncio.get_running_loop().create_task(self._wait_for_room())

    async def _wait_for_room(self) -> None:
        held = self._held
        while held.choked:
            before = held.buffered()
            try:
                await asyncio.wait_for(held.drain(), self._patience_s)
            except TimeoutError:
                if held.buffered() >= before:
                    self.give_up()
                    self._abort_in(EXPLANATION_S)
                    return
        self._waiting = None
        if not held.closed:
            self.stalled = False
            self.on_relief()

    def hang_up(self) -> None:
        """Close once everything is sent, or after a while without that."""
        self.release()
        self._held.close()
        self._abort_in(FAREWELL_S)

    def abort(self) -> None:
        """Close at once."""
        self._held.abort()

    def _abort_in(self, seconds: float) -> None:
        self._cancel_farewell()
        self._farewell = asyncio.get_running_loop().call_later(seconds, self._held.abort)

    def _cancel_farewell(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    def on_closed(self) -> None:
        """Clean up after the connection has ended."""
        self.release()
        self._cancel_farewell()

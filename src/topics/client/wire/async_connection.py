"""One connection on asyncio, and the futures of its answers."""

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from topics.client.wire.answers import AnswerParser, KnownHeads
from topics.client.wire.requests import Response, broken

if TYPE_CHECKING:
    from topics.client.wire.async_pool import Pool

# Beyond this, a stream that is not read is not received.
_STREAM_BYTES = 4 << 20


class ClientConnection(asyncio.BufferedProtocol):
    """A connection of a pool, with one of two uses at a time.

    `ask` and `ask_pipelined` send requests whose answers resolve futures. With `send` and `receive`, the
    caller receives when it wants to, as for streams and prefetched pages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, known: KnownHeads, pool: "Pool") -> None:
        self._loop = loop
        self._pool = pool
        self._parser = AnswerParser(known)
        # One timer for all waits, because most end long before their deadline.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        # The futures of the requests that were asked, in their order.
        self._waiters: deque[asyncio.Future[Response]] = deque()
        # How many requests were pipelined in one piece, and in how many pieces their answers came.
        self._count = self._pieces = 0
        # The future of more bytes, for `receive`.
        self._waiter: asyncio.Future[None] | None = None
        # In use by `send` and `receive`.
        self._is_receiving = False
        # For another request. Kept up to date, because every request asks for it.
        self.is_usable = True
        self._failure: Exception | None = None
        self._wants_head = False
        self._is_stream = False
        self._is_paused = False
        self._transport: asyncio.Transport = None  # type: ignore[assignment]

    # --- what asyncio calls -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.room

    def buffer_updated(self, nbytes: int) -> None:
        parser = self._parser
        try:
            parser.received(nbytes)
            if self._waiters:
                self._answer()
                return
            if not self._is_receiving:
                raise ValueError("the server said more than it was asked")
        except ValueError as error:
            self._fail(error)
            if not self._is_receiving:
                self.close()
            return
        if parser.answers or self._is_stream or (self._wants_head and parser.head_done):
            self._wake()
        if self._is_stream and parser.body_bytes > _STREAM_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.is_usable = False
        if self._parser.finish() and self._waiters:
            self._answer()
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self.is_usable = False
        if not self._waiters:
            self._wake()
            return
        waiters = self._stop_asking()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(broken(error))

    def _answer(self) -> None:
        """Hand out the answers that have come. Raises `ValueError` if they are more than was asked for."""
        parser, waiters = self._parser, self._waiters
        answers = parser.answers
        self._pieces += 1
        left = len(waiters) - len(answers)
        if left < 0 or (not left and not parser.is_idle):
            raise ValueError("the server sent more than it was asked for")
        while answers:
            answer, waiter = answers.popleft(), waiters.popleft()
            if not waiter.done():  # it may be cancelled
                waiter.set_result(answer)
        if not left:
            self.is_usable = self.is_usable and parser.keeps
            # Before the writers run, so that the next request of this turn of the loop can use it.
            self._pool.answered(self, self._count, self._pieces)
        elif not parser.keeps:
            self._fail(ConnectionResetError("the server closed the connection"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- asking -----------------------------------------------------------------------------------------

    def ask(self, data: bytes, now: float, timeout_s: float) -> "asyncio.Future[Response]":
        """Send a request and return the future of its answer. A caller that stops waiting calls `abandon`."""
        waiter: asyncio.Future[Response] = self._loop.create_future()
        self._waiters.append(waiter)
        self._count = 0
        self._ask(data, now + timeout_s)
        return waiter

    def ask_pipelined(
        self, data: list[bytes], waiters: "list[asyncio.Future[Response]]", now: float, timeout_s: float
    ) -> None:
        """Send several requests in one piece. The answer to a cancelled one is dropped."""
        self._waiters.extend(waiters)
        self._count, self._pieces = len(waiters), 0
        self._ask(b"".join(data), now + timeout_s)

    def _ask(self, data: bytes, deadline: float) -> None:
        self._wait_until(deadline)
        if self._failure is None:
            self._transport.write(data)
        else:
            self._fail(self._failure)

    def abandon(self, answer: "asyncio.Future[Response]") -> None:
        """Close the connection of a request that nobody waits for: its answer would go to the next one."""
        if answer in self._waiters:
            self._stop_asking()

    def _stop_asking(self) -> "deque[asyncio.Future[Response]]":
        waiters, self._waiters = self._waiters, deque()
        self._pool.slots.give_back()
        self.close()
        return waiters

    # --- receiving --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._is_receiving = True
        self._transport.write(data)

    def rest(self) -> None:
        """The request is answered, and the whole answer received."""
        self._is_receiving = False
        self.is_usable = self.is_usable and self._parser.is_ready

    async def receive(self, timeout_s: float) -> Response:
        while not self._parser.answers:
            await self._more(timeout_s)
            self._raise_failure()
        return self._parser.take()

    async def receive_head(self, timeout_s: float) -> Response:
        self._wants_head = True
        while not self._parser.has_head:
            await self._more(timeout_s)
            self._raise_failure()
        self._wants_head = False
        head = self._parser.head()
        self._is_stream = head.status == 200
        return head if self._is_stream else await self.receive(timeout_s)

    async def receive_some(self, wait_s: float) -> bytes | None:
        while True:
            data = self._parser.take_body()
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            if data or self._parser.is_idle or self._failure is not None:
                return data
            try:
                await self._more(wait_s)
                self._raise_failure()
            except TimeoutError:
                return None
            except (OSError, ValueError):
                return b""

    def _more(self, timeout_s: float) -> "asyncio.Future[None]":
        """Return a future that is done when bytes have come, or the connection has failed."""
        self._raise_failure()
        self._waiter = waiter = self._loop.create_future()
        self._wait_until(monotonic() + timeout_s)
        return waiter

    def _raise_failure(self) -> None:
        if self._failure is not None and not self._parser.answers:
            raise self._failure

    def close(self) -> None:
        self._transport.abort()

    # --- in time ----------------------------------------------------------------------------------------

    def _wait_until(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_later(self._deadline - monotonic(), self._time_has_come)

    def _time_has_come(self) -> None:
        """The timer has fired: for the current wait, or only for one before it."""
        self._timer = None
        if not self._waiters and (self._waiter is None or self._waiter.done()):
            return
        if monotonic() < self._deadline:
            self._set_timer()
            return
        late = TimeoutError("no answer in time")
        if self._waiters:
            self._fail(late)
        elif self._waiter is not None:
            self._waiter.set_exception(late)

"""One connection on asyncio, and the futures of its answers."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any, Protocol

from topics.client.wire.answers import AnswerParser, KnownHeads, PipelinedAnswers
from topics.client.wire.requests import Response, broken

# Beyond this, a stream that is not read is not received.
_STREAM_BYTES = 4 << 20


class ConnectionOwner(Protocol):
    """The pool of a connection, which learns when requests are answered or have failed."""

    def answered(self, connection: "ClientConnection") -> None:
        """The slot of the request is free, and so is the connection."""

    def failed(self) -> None:
        """The slot is free, and the connection is closed."""

    def answered_pipelined(self, count: int, pieces: int) -> None:
        """`count` requests were sent in one piece, and their answers came in `pieces`."""


class ClientConnection(asyncio.BufferedProtocol):
    """A connection of a pool, with one of two uses at a time.

    `ask` and `ask_pipelined` send requests whose answers resolve futures. With `send` and `receive`, the
    caller receives when it wants to, as for streams and prefetched pages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, known: KnownHeads, owner: ConnectionOwner) -> None:
        self._loop = loop
        self._owner = owner
        self._parser = AnswerParser(known)
        # One timer for all waits, because most end long before their deadline.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        # The future of the answer, or of more bytes.
        self._waiter: asyncio.Future[Any] | None = None
        self._is_asked = False
        # The futures of pipelined requests.
        self._waiters: deque[asyncio.Future[Response]] = deque()
        self._pipelined = PipelinedAnswers(known)
        self._count = self._pieces = 0
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
        if self._waiters:
            self._take_pipelined(self._parser.room[:nbytes].tobytes())
            return
        if self._is_asked:
            if (answer := self._parser.answer(nbytes)) is not None:
                self._answer(answer)
                return
        elif not self._is_receiving:
            self._fail(ValueError("the server said more than it was asked"))
            self.close()
            return
        try:
            self._parser.received(nbytes)
        except ValueError as error:
            self._fail(error)
            return
        if self._parser.is_complete:
            if self._is_asked:
                self._take_answer()
            else:
                self._wake()
        elif self._is_stream or (self._wants_head and self._parser.head_done):
            self._wake()
        if self._is_stream and self._parser.body_bytes > _STREAM_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._parser.finish() and not self._waiters:
            self._failure = ConnectionResetError("closed")
            self.is_usable = False
            if self._is_asked:
                self._take_answer()
            else:
                self._wake()
        else:
            self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self.is_usable = False
        if not self._is_asked:
            self._wake()
            return
        waiters, self._waiters = self._waiters or (self._waiter,), deque()
        self._stop_asking()
        for waiter in waiters:
            if waiter is not None and not waiter.done():
                waiter.set_exception(broken(error))

    def _take_answer(self) -> None:
        answer = self._parser.take()
        self.is_usable = self.is_usable and self._parser.is_ready
        self._answer(answer)

    def _answer(self, answer: Response) -> None:
        self._is_asked = False
        waiter: asyncio.Future[Response] = self._waiter  # type: ignore[assignment]
        if not waiter.done():  # it may be cancelled
            waiter.set_result(answer)
        # Before the writer runs, so that the next request of this turn of the loop can use the connection.
        self._owner.answered(self)

    def _take_pipelined(self, data: bytes) -> None:
        self._pieces += 1
        waiters = self._waiters
        try:
            answers = self._pipelined.received(data)
            for answer in answers:
                waiter = waiters.popleft()
                if not waiter.done():
                    waiter.set_result(answer)
        except (ValueError, IndexError) as error:
            self._fail(error)
            return
        if not waiters:
            self._is_asked = False
            self.is_usable = self.is_usable and not (self._pipelined.is_last or self._pipelined.has_rest)
            self._owner.answered_pipelined(self._count, self._pieces)
            self._owner.answered(self)
        elif self._pipelined.is_last:
            self._fail(ConnectionResetError("the server closed the connection"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- asking -----------------------------------------------------------------------------------------

    def ask(self, data: bytes, now: float, timeout_s: float) -> "asyncio.Future[Response]":
        """Send a request and return the future of its answer. A caller that stops waiting calls `abandon`."""
        self._is_asked = True
        # `_expect`, without a call: every write does this.
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline = now + timeout_s
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()
        if self._failure is None:
            self._transport.write(data)
        else:
            self._fail(self._failure)
        return waiter

    def ask_pipelined(
        self, data: list[bytes], waiters: "list[asyncio.Future[Response]]", now: float, timeout_s: float
    ) -> None:
        """Send several requests in one piece. The answer to a cancelled one is dropped."""
        self._is_asked = True
        self._waiter = None
        self._waiters.extend(waiters)
        self._count, self._pieces = len(waiters), 0
        self._deadline = deadline = now + timeout_s
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()
        if self._failure is None:
            self._transport.write(b"".join(data))
        else:
            self._fail(self._failure)

    def abandon(self, answer: "asyncio.Future[Response]") -> None:
        """Close the connection of a request that nobody waits for: its answer would go to the next one."""
        if self._is_asked and self._waiter is answer:
            self._stop_asking()

    def _stop_asking(self) -> None:
        self._is_asked = False
        self._owner.failed()
        self.close()

    # --- receiving --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._is_receiving = True
        self._transport.write(data)

    def rest(self) -> None:
        """The request is answered, and the whole answer received."""
        self._is_receiving = False
        self.is_usable = self.is_usable and self._parser.is_ready

    async def receive(self, timeout_s: float) -> Response:
        parser = self._parser
        while not parser.is_complete:
            await self._more(timeout_s)
            self._raise_failure()
        return parser.take()

    async def receive_head(self, timeout_s: float) -> Response:
        self._wants_head = True
        while not self._parser.head_done:
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
            if data or self._parser.is_complete or self._failure is not None:
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
        return self._expect(monotonic() + timeout_s)

    def _raise_failure(self) -> None:
        if self._failure is not None and not self._parser.is_complete:
            raise self._failure

    def close(self) -> None:
        self._transport.abort()

    # --- in time ----------------------------------------------------------------------------------------

    def _expect(self, deadline: float) -> "asyncio.Future[Any]":
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()
        return waiter

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
        if self._is_asked:
            self._fail(late)
        elif self._waiter is not None:
            self._waiter.set_exception(late)

"""One connection on asyncio, and what waits for its answers."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any, Protocol

from topics.client.wire.answers import AnswerParser, AnswersInTurn, KnownHeads
from topics.client.wire.effects import Broken, Response

# A stream that is not read stops being received.
_STREAM_BYTES = 4 << 20


class Home(Protocol):
    """Where a connection goes back to by itself once what it was asked is answered, or will not be."""

    def answered(self, connection: "Connection") -> None:
        """The place that the request had is free, and so is the connection."""

    def failed(self) -> None:
        """The place is free, and the connection is closed."""

    def answered_in_turn(self, count: int, pieces: int) -> None:
        """So many requests went out in one piece, and their answers came in so many."""


class Connection(asyncio.BufferedProtocol):
    """Used in one of two ways at a time: it is asked for a whole answer, or for some that come in turn, whose
    place it holds until then; or something is sent, and what comes is received as it is wanted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, known: KnownHeads, home: Home) -> None:
        self._loop = loop
        self._home = home
        self._parser = AnswerParser(known)
        # One timer for all that is waited for, one after the other: most of it comes long before its time.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        # For the answer to what was asked, or for something to have come.
        self._waiter: asyncio.Future[Any] | None = None
        self._is_asked = False
        # For the answers to what was asked in one piece.
        self._waiters: deque[asyncio.Future[Response]] = deque()
        self._in_turn = AnswersInTurn(known)
        self._count = self._pieces = 0
        # Something was sent, and what comes is being received.
        self._is_receiving = False
        # For another request; asked for each of them, so that it is kept, not found out.
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
            self._take_in_turn(self._parser.room[:nbytes].tobytes())
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
        if not waiter.done():  # whoever was cancelled has still to say so
            waiter.set_result(answer)
        # Before its writer is awake: whoever asks next in this turn of the loop can have it.
        self._home.answered(self)

    def _take_in_turn(self, data: bytes) -> None:
        self._pieces += 1
        waiters = self._waiters
        try:
            answers = self._in_turn.received(data)
            for answer in answers:
                waiter = waiters.popleft()
                if not waiter.done():
                    waiter.set_result(answer)
        except (ValueError, IndexError) as error:
            self._fail(error)
            return
        if not waiters:
            self._is_asked = False
            self.is_usable = self.is_usable and not (self._in_turn.is_last or self._in_turn.has_rest)
            self._home.answered_in_turn(self._count, self._pieces)
            self._home.answered(self)
        elif self._in_turn.is_last:
            self._fail(ConnectionResetError("the server closed the connection"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- asking -----------------------------------------------------------------------------------------

    def ask(self, data: bytes, now: float, timeout_s: float) -> "asyncio.Future[Response]":
        """Send a request; what this gives is its answer, or `Broken`. Who stops waiting `abandon`s it."""
        self._is_asked = True
        # As `_expect` does: most of what is waited for is this.
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline = now + timeout_s
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()
        if self._failure is None:
            self._transport.write(data)
        else:
            self._fail(self._failure)
        return waiter

    def ask_in_turn(
        self, data: list[bytes], waiters: "list[asyncio.Future[Response]]", now: float, timeout_s: float
    ) -> None:
        """Send several requests in one piece. The answer to one that nobody waits for any more is dropped."""
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
        """Nobody waits for it any more. Should it still come, it would be taken for the next request's."""
        if self._is_asked and self._waiter is answer:
            self._stop_asking()

    def _stop_asking(self) -> None:
        self._is_asked = False
        self._home.failed()
        self.close()

    # --- receiving --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._is_receiving = True
        self._transport.write(data)

    def rest(self) -> None:
        """What was sent has been answered, and all of it received."""
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
        """Done when something has come, or went wrong."""
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
        """For what is waited for now, or only for something before it."""
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


def broken(error: Exception) -> Broken:
    return Broken(str(error) or type(error).__name__)

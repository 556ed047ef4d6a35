"""Runs operations on asyncio: the same effects as `blocking`, awaited."""

import asyncio
import inspect
import ssl
import threading
from collections import deque
from typing import Any, TypeVar

from topics.client.wire.address import Address
from topics.client.wire.answers import AnswerParser, KnownHeads
from topics.client.wire.effects import (
    Abandon,
    Begin,
    Broken,
    Call,
    ClientClosed,
    CloseStream,
    Effect,
    Exchange,
    Finish,
    NotConnected,
    Open,
    Operation,
    Pause,
    Receive,
    Request,
    Response,
)
from topics.client.wire.forks import tell_when_forked

R = TypeVar("R")
# Requests beyond so many wait for one to end; those that are silent on purpose are not counted.
MAX_CONNECTIONS = 100
# A stream that is not read stops being received.
_STREAM_BYTES = 4 << 20


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, known: KnownHeads) -> None:
        self._loop = loop
        self._parser = AnswerParser(known)
        # One timer for all that is waited for, one after the other: most of it comes long before its time.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        # For something to have come; or for a whole answer, which it is given.
        self._waiter: asyncio.Future[Any] | None = None
        self._wants_answer = False
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
        if self._wants_answer and (answer := self._parser.answer(nbytes)) is not None:
            self._give_answer(answer)
            return
        try:
            self._parser.received(nbytes)
        except ValueError as error:
            self._fail(error)
            return
        if self._parser.is_complete:
            if self._wants_answer:
                self._give_answer(self._parser.take())
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
        if self._parser.finish():
            self._failure = ConnectionResetError("closed")
            if self._wants_answer:
                self._give_answer(self._parser.take())
            self._wake()
        else:
            self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._failure = error
        if self._wants_answer and self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self._wake()

    def _give_answer(self, answer: Response) -> None:
        self._wants_answer = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- what the pool calls ----------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._failure is None and not self._transport.is_closing() and self._parser.is_ready

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def ask(self, data: bytes, timeout_s: float) -> "asyncio.Future[Response]":
        """What `send` and `receive` do, in one go: most requests are this."""
        self._raise_failure()
        self._wants_answer = True
        waiter = self._expect(timeout_s)
        self._transport.write(data)
        return waiter

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
        return self._expect(timeout_s)

    def _expect(self, timeout_s: float) -> "asyncio.Future[Any]":
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline = self._loop.time() + timeout_s
        if self._timer is None or self._timer_at > deadline:
            self._set_timer()
        return waiter

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._time_has_come)

    def _time_has_come(self) -> None:
        """For what is waited for now, or only for something before it."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
        else:
            self._waiter.set_exception(TimeoutError("no answer in time"))

    def _raise_failure(self) -> None:
        if self._failure is not None and not self._parser.is_complete:
            raise self._failure

    def close(self) -> None:
        self._transport.abort()


class _Places:
    """For so many requests at a time; the others wait. A semaphore takes four times as long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.free = MAX_CONNECTIONS
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        while not self.free:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                self._call_next()  # it may have been called, and does not go
                raise

    def give_back(self) -> None:
        self.free += 1
        if self._waiting:
            self._call_next()

    def _call_next(self) -> None:
        while self.free and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Pool:
    """The connections of one event loop. No other loop can use them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: deque[_Connection] = deque()
        self.places = _Places(loop)
        self.is_closed = False

    def take(self) -> _Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable:
                return connection
        return None

    def give_back(self, connection: _Connection) -> None:
        if connection.is_usable and not self.is_closed:
            self.idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self.is_closed = True
        idle, self.idle = self.idle, deque()
        for connection in idle:
            connection.close()


def _broken(connection: _Connection, error: BaseException) -> BaseException:
    """What to raise. Who was cancelled is told so; the answer would be taken for the next request's."""
    connection.close()
    if isinstance(error, OSError | ValueError):
        return Broken(str(error) or type(error).__name__)
    return error


class AsyncIO:
    """Runs operations over the connections of the loop that asks: threads may have a loop each."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._known: KnownHeads = {}
        # Those of the loops there are, and the one that was used last.
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._last: _Pool | None = None
        self._lock = threading.Lock()
        tell_when_forked(self)

    def forget_parent(self) -> None:
        self._pools, self._last, self._lock = {}, None, threading.Lock()

    def _pool(self) -> _Pool:
        """A client that was closed in one loop is open in another."""
        loop = asyncio.get_running_loop()
        pool = self._last
        if pool is None or pool.loop is not loop:
            with self._lock:
                pool = self._pools.get(loop)
                if pool is None:
                    pool = _Pool(loop)
                    self._pools = {known: of for known, of in self._pools.items() if not known.is_closed()}
                    self._pools[loop] = pool
            self._last = pool
        return pool

    async def run(self, operation: Operation[R], *, ends: bool = False) -> R:
        """`ends`: what a reader has left to do at its end, which may come behind that of the client."""
        pool = self._pool()
        if pool.is_closed and not ends:
            operation.close()
            raise ClientClosed
        value: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect = operation.send(value) if failure is None else operation.throw(failure)
            except StopIteration as end:
                result: R = end.value
                return result
            value = failure = None
            try:
                if type(effect) is Exchange:  # what most of them are
                    value = await self._exchange(pool, effect.request)
                else:
                    value = await self._perform(pool, effect)
            except BaseException as error:
                failure = error

    async def _exchange(self, pool: _Pool, request: Request) -> Response:
        if request.wait_s:
            return await self._finish(pool, await self._begin(pool, request), request)
        places = pool.places
        if not places.free:
            await places.wait()
        places.free -= 1
        try:
            connection = pool.take() or await self._connect()
            try:
                response = await connection.ask(self._address.render(request), self._timeout_s)
            except BaseException as error:
                raise _broken(connection, error) from None
        finally:
            places.give_back()
        pool.give_back(connection)
        return response

    async def _perform(self, pool: _Pool, effect: Effect) -> Any:
        match effect:
            case Begin(request):
                return await self._begin(pool, request), request
            case Finish((connection, request)):
                return await self._finish(pool, connection, request)
            case Abandon((connection, _)):
                connection.close()
            case Open(request):
                return await self._open(pool, request)
            case Receive(stream, wait_s):
                return await stream.receive_some(wait_s)
            case CloseStream(stream):
                stream.close()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Call(function, arguments):
                result = function(*arguments)
                return await result if inspect.isawaitable(result) else result
        return None

    async def _begin(self, pool: _Pool, request: Request) -> _Connection:
        data = self._address.render(request)
        connection = pool.take() or await self._connect()
        connection.send(data)
        return connection

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        context = ssl.create_default_context() if address.is_tls else None
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._known),
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if address.is_tls else None,
                )
        except OSError as error:  # TimeoutError is one
            raise NotConnected(str(error) or "no connection in time") from error
        return connection

    async def _finish(self, pool: _Pool, connection: _Connection, request: Request) -> Response:
        try:
            response = await connection.receive(self._timeout_s + request.wait_s)
        except BaseException as error:
            raise _broken(connection, error) from None
        pool.give_back(connection)
        return response

    async def _open(self, pool: _Pool, request: Request) -> tuple[Response, _Connection | None]:
        connection = await self._begin(pool, request)
        try:
            response = await connection.receive_head(self._timeout_s + request.wait_s)
        except BaseException as error:
            raise _broken(connection, error) from None
        if response.status == 200:
            return response, connection
        pool.give_back(connection)
        return response, None

    async def close(self) -> None:
        self._pool().close()
        await asyncio.sleep(0)

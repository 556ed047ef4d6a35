"""Runs operations on asyncio, over the connections of the running loop."""

import asyncio
import inspect
import ssl
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from topics.client.wire.answers import KnownHeads
from topics.client.wire.async_connection import ClientConnection
from topics.client.wire.async_pool import Pool
from topics.client.wire.requests import (
    Address,
    ClientClosed,
    NotConnected,
    Operation,
    Response,
    WireRequest,
    broken,
    render_keyed,
)
from topics.client.wire.session import reset_after_fork

R = TypeVar("R")
# Statements under `if IS_ASYNC:` are left out of the generated blocking modules, and so are definitions whose
# names begin with `_aio_`.
IS_ASYNC: Final = True


def _ended(connection: ClientConnection, error: BaseException) -> BaseException:
    """Close the connection of a failed request, and return the error to raise."""
    connection.close()
    return broken(error) if isinstance(error, OSError | ValueError) else error


class AsyncIO:
    """Runs operations over the connections of the running loop. Each thread may have a loop of its own."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self.before_headers = address.before_headers
        self._known: KnownHeads = {}
        # The pools of all open loops, and the last one used.
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._last: Pool | None = None
        self._lock = threading.Lock()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        self._pools, self._last, self._lock = {}, None, threading.Lock()

    def _pool(self) -> Pool:
        """The pool of the running loop. A client that is closed in one loop is open in another."""
        loop = asyncio.get_running_loop()
        pool = self._last
        if pool is None or pool.loop is not loop:
            with self._lock:
                pool = self._pools.get(loop)
                if pool is None:
                    pool = Pool(loop)
                    self._pools = {known: of for known, of in self._pools.items() if not known.is_closed()}
                    self._pools[loop] = pool
            self._last = pool
        return pool

    @property
    def cursors(self) -> WeakValueDictionary[int, Any]:
        """The cursors of readers in this loop, by identity, because a user's cursor may not be hashable."""
        return self._pool().cursors

    async def run(self, operation: Operation[R], *, ends: bool = False) -> R:
        """Run an operation to its end and return its result.

        `ends` allows it after `close`: readers that end later still store their positions.
        """
        if self._pool().is_closed and not ends:
            operation.close()
            raise ClientClosed
        return await operation

    def attempt(
        self, before_headers: bytes, key: str, body: bytes, now: float
    ) -> "tuple[ClientConnection | None, asyncio.Future[Any]] | None":
        """Send a write with this key at once, if a connection and a slot are free; None if not.

        Without a connection, it goes out with others, and its answer may be dropped; or is None, if it could
        not go out after all.
        """
        pool = self._last
        if pool is None or pool.loop is not asyncio.get_running_loop():
            pool = self._pool()
        slots = pool.slots
        idle = pool.idle
        if not slots.free or not idle:
            return None
        data = render_keyed(before_headers, key, body)
        if pool.outbox.gathers(now):
            return None, pool.outbox.add(before_headers, data, self._timeout_s)
        connection = idle.pop()
        if not connection.is_usable:
            return None
        slots.free -= 1
        return connection, connection.ask(data, now, self._timeout_s)

    # --- what operations await --------------------------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the user's, which may be a coroutine function."""
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    def attach(self, cursor: object) -> None:
        """Note that a reader begins to use a cursor, whose position the client stores before it closes."""
        self.cursors[id(cursor)] = cursor

    async def round_trip(self, request: WireRequest) -> Response:
        """Send a request and return its answer. Raises `NotConnected` or `Broken`."""
        if request.wait_s:
            return await self.finish(await self.begin(request))
        pool = self._pool()
        slots = pool.slots
        if not slots.free:
            await slots.wait()
        slots.free -= 1
        try:
            connection = pool.take() or await self._connect(pool)
        except BaseException:
            slots.give_back()
            raise
        answer = connection.ask(self._address.render(request), monotonic(), self._timeout_s)
        try:
            return await answer
        except BaseException:
            connection.abandon(answer)
            raise

    async def begin(self, request: WireRequest) -> tuple[ClientConnection, WireRequest]:
        """Send a request without waiting for its answer, for which `finish` waits."""
        pool, data = self._pool(), self._address.render(request)
        connection = pool.take() or await self._connect(pool)
        connection.send(data)
        return connection, request

    async def finish(self, begun: tuple[ClientConnection, WireRequest]) -> Response:
        connection, request = begun
        try:
            response = await connection.receive(self._timeout_s + request.wait_s)
        except BaseException as error:
            raise _ended(connection, error) from None
        connection.rest()
        self._pool().give_back(connection)
        return response

    def abandon(self, begun: tuple[ClientConnection, WireRequest]) -> None:
        """Drop a request that was begun: its answer is not needed."""
        begun[0].close()

    async def open(self, request: WireRequest) -> tuple[Response, ClientConnection | None]:
        """Send a request whose answer is a stream. Returns the head of the answer, and the stream."""
        connection, _ = await self.begin(request)
        try:
            response = await connection.receive_head(self._timeout_s + request.wait_s)
        except BaseException as error:
            raise _ended(connection, error) from None
        if response.status == 200:
            return response, connection
        connection.rest()
        self._pool().give_back(connection)
        return response, None

    async def receive(self, stream: ClientConnection, wait_s: float) -> bytes | None:
        """Receive more of a stream: empty at its end, None after `wait_s` of silence."""
        return await stream.receive_some(wait_s)

    async def _connect(self, pool: Pool) -> ClientConnection:
        loop, address = pool.loop, self._address
        context = ssl.create_default_context() if address.is_tls else None
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(loop, self._known, pool),
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if address.is_tls else None,
                )
        except OSError as error:  # TimeoutError is one
            raise NotConnected(str(error) or "no connection in time") from error
        return connection

    async def close(self) -> None:
        self._pool().close()
        await asyncio.sleep(0)


class BackgroundTask:
    """An operation in a task of its own, which its caller stops in the end.

    If the operation returns False, the caller is cancelled.
    """

    def __init__(self, io: AsyncIO, work: Callable[[], Operation[bool]]) -> None:
        self._io = io
        self._work = work
        self._caller = asyncio.current_task()
        # Whether the operation returned False before it was stopped.
        self.has_failed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        if not await self._io.run(self._work()):
            self.has_failed = True
            if self._caller is not None:
                self._caller.cancel()

    def has_cancelled(self, error: BaseException) -> bool:
        """Whether the caller was cancelled by this task, and by nothing else."""
        if not self.has_failed or not isinstance(error, asyncio.CancelledError):
            return False
        return self._caller is None or self._caller.uncancel() <= 0

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def run_in_tasks(work: Callable[[], Awaitable[None]], count: int, stop: Callable[[], None]) -> None:
    """Run `work` in `count` tasks until all have ended. If one fails, stop all and raise its error."""
    tasks = [asyncio.ensure_future(work()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        # After a failure of one, or a cancellation: the jobs under way are finished.
        stop()
        await asyncio.wait(tasks)

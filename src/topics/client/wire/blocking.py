"""Runs operations with blocking sockets. Threads may share it: a connection has one user at a time."""

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from types import coroutine
from typing import Any, TypeAlias, TypeVar

from topics.client.wire.answers import AnswerParser, KnownHeads
from topics.client.wire.requests import (
    Address,
    ClientClosed,
    NotConnected,
    Operation,
    Response,
    WireRequest,
    broken,
)
from topics.client.wire.session import reset_after_fork

R = TypeVar("R")


class BlockingConnection:
    def __init__(self, address: Address, connect_s: float, timeout_s: float, known: KnownHeads) -> None:
        try:
            self._socket = socket.create_connection((address.host, address.port), connect_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.is_tls:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        except OSError as error:
            raise NotConnected(str(error)) from error
        self._timeout_s = timeout_s
        self._parser = AnswerParser(known)
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """Close the copy of the parent's socket. A request that waits for it here is sent again."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> Response:
        while not self._parser.answers:
            self._feed(timeout_s)
        return self._parser.take()

    def receive_head(self, timeout_s: float) -> Response:
        """Receive the head of a stream, or the whole of another answer."""
        while not self._parser.has_head:
            self._feed(timeout_s)
        head = self._parser.head()
        return head if head.status == 200 else self.receive(timeout_s)

    def receive_some(self, wait_s: float) -> bytes | None:
        while True:
            data = self._parser.take_body()
            if data or self._parser.is_idle:
                return data
            try:
                self._feed(wait_s)
            except TimeoutError:
                return None
            except (OSError, ValueError):
                return b""

    def _feed(self, timeout_s: float) -> None:
        self._socket.settimeout(max(timeout_s, 0.001))
        count = self._socket.recv_into(self._parser.room)
        if count:
            self._parser.received(count)
        elif not self._parser.finish():
            raise ConnectionResetError("the server closed the connection")

    def is_silent_for(self, seconds: float) -> bool:
        return not select.select([self._socket], [], [], seconds)[0]

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or has sent what was not asked for."""
        if isinstance(self._socket, ssl.SSLSocket):
            return False  # TLS cannot peek; a request over a closed connection is sent again
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    @property
    def is_reusable(self) -> bool:
        return self._parser.is_ready

    def close(self) -> None:
        self._socket.close()


Begun: TypeAlias = tuple[BlockingConnection, WireRequest]


class Blocking:
    """A pool of connections, over which operations run."""

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        *,
        connect_s: float | None = None,
        on_silence: Callable[[], None] | None = None,
    ) -> None:
        """`on_silence` is called once, if the first answer takes longer than `connect_s`."""
        self._address = address
        self._timeout_s = timeout_s
        self._connect_s = timeout_s if connect_s is None else connect_s
        self._on_silence = on_silence
        self._idle: deque[BlockingConnection] = deque()
        self._known: KnownHeads = {}
        self._is_closed = False

    def run(
        self,
        operation: Operation[R],
        *,
        ends: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> R:
        """Run an operation to its end and return its result. Only its pauses suspend it.

        `ends` allows it after `close`: readers that end later still store their positions.
        """
        if self._is_closed and not ends:
            operation.close()
            raise ClientClosed
        failure: BaseException | None = None
        while True:
            try:
                seconds = operation.send(None) if failure is None else operation.throw(failure)
            except StopIteration as end:
                result: R = end.value
                return result
            try:
                failure = None
                pause(seconds)
            except BaseException as error:
                failure = error

    # --- what operations await --------------------------------------------------------------------------

    @coroutine
    def pause(self, seconds: float) -> Generator[float, None, None]:
        """Pause, in the way of the caller of `run`."""
        yield seconds

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the user's."""
        return function(*arguments)

    def attach(self, cursor: object) -> Callable[[Operation[Any]], Any]:
        """Return the function that runs operations for a cursor's `commit`, whose reader begins to use it."""
        return self.run

    async def round_trip(self, request: WireRequest) -> Response:
        """Send a request and return its answer. Raises `NotConnected` or `Broken`."""
        return self._finish(self._begin(request), request)

    async def begin(self, request: WireRequest) -> Begun:
        """Send a request without waiting for its answer, for which `finish` waits."""
        return self._begin(request), request

    async def finish(self, begun: Begun) -> Response:
        return self._finish(*begun)

    def abandon(self, begun: Begun) -> None:
        """Drop a request that was begun: its answer is not needed."""
        begun[0].close()

    async def open(self, request: WireRequest) -> tuple[Response, BlockingConnection | None]:
        """Send a request whose answer is a stream. Returns the head of the answer, and the stream."""
        connection = self._begin(request)
        try:
            response = connection.receive_head(self._timeout_s + request.wait_s)
        except (OSError, ValueError) as error:
            connection.close()
            raise broken(error) from error
        if response.status == 200:
            return response, connection
        self._give_back(connection)
        return response, None

    async def receive(self, stream: BlockingConnection, wait_s: float) -> bytes | None:
        """Receive more of a stream: empty at its end, None after `wait_s` of silence."""
        return stream.receive_some(wait_s)

    # --- connections ------------------------------------------------------------------------------------

    def _begin(self, request: WireRequest) -> BlockingConnection:
        data = self._address.render(request)
        connection = self._take()
        if connection is not None:
            try:
                connection.send(data)
                return connection
            except OSError:
                connection.close()  # closed by the server while it was idle
        connection = BlockingConnection(self._address, self._connect_s, self._timeout_s, self._known)
        try:
            connection.send(data)
        except OSError as error:
            connection.close()
            raise broken(error) from error
        return connection

    def _finish(self, connection: BlockingConnection, request: WireRequest) -> Response:
        try:
            if self._on_silence is not None:
                on_silence, self._on_silence = self._on_silence, None
                if connection.is_silent_for(self._connect_s):
                    on_silence()
            response = connection.receive(self._timeout_s + request.wait_s)
        except (OSError, ValueError) as error:
            connection.close()
            raise broken(error) from error
        except BaseException:
            connection.close()  # or the next request would get this answer
            raise
        self._give_back(connection)
        return response

    def _take(self) -> BlockingConnection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not connection.is_stale:
                return connection
            connection.close()

    def _give_back(self, connection: BlockingConnection) -> None:
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._is_closed = True
        idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        # A client that is dropped without `close` leaves no open sockets.
        if hasattr(self, "_idle"):
            self.close()


class _LoopStopped(BaseException):
    """Raised into an operation in the background when it is no longer needed."""


class BackgroundThread:
    """An operation in a thread of its own, which its caller stops in the end."""

    def __init__(self, io: Blocking, work: Callable[[], Operation[bool]]) -> None:
        self._io = io
        self._work = work
        self._stop = threading.Event()
        # Whether the operation returned False before it was stopped.
        self.has_failed = False
        self._thread = threading.Thread(target=self._run, name="topics-background", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.has_failed = not self._io.run(self._work(), pause=self._pause)
        except _LoopStopped:
            pass

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _LoopStopped

    def has_cancelled(self, error: BaseException) -> bool:
        """False: a thread cannot interrupt its caller."""
        return False

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def run_in_threads(work: Callable[[], None], count: int, stop: Callable[[], None]) -> None:
    """Run `work` in `count` threads until all have ended. If one fails, stop all and raise its error."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            stop()

    threads = [
        threading.Thread(target=run, name=f"topics-worker-{number}", daemon=True) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        # After an interruption: the jobs under way are finished.
        stop()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]

"""The connections of one event loop, and the limit of its requests under way."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from topics.client.wire.async_connection import ClientConnection
from topics.client.wire.requests import Response

# More requests wait for one of these to end. Long polls are not counted.
MAX_CONNECTIONS = 100
# Up to so many requests under way, batching them gains nothing.
_FEW = 3
# The most requests in one piece. With larger pieces, client and server would work in turns.
_MOST_TOGETHER = 16
# A proxy, or another server, may handle pipelined requests one by one. After so many such pieces,
# each request uses a connection of its own for a while.
_OFTEN = 8
_ALONE_S = 1.0


class Slots:
    """The slots of requests under way. A semaphore would take four times as long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.free = MAX_CONNECTIONS
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        while not self.free:
            turn = self._loop.create_future()
            self.waiting.append(turn)
            try:
                await turn
            except BaseException:
                self.call_next()  # the slot may have been given to this one
                raise

    def give_back(self) -> None:
        self.free += 1
        if self.waiting:
            self.call_next()

    def call_next(self) -> None:
        while self.free and self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Pool:
    """The connections of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[ClientConnection] = []
        self.slots = Slots(loop)
        self.outbox = Outbox(self)
        # The cursors of readers. The client stores their positions before it closes.
        self.cursors: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.is_closed = False

    def take(self) -> ClientConnection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable:
                return connection
        return None

    def give_back(self, connection: ClientConnection) -> None:
        if connection.is_usable and not self.is_closed:
            self.idle.append(connection)
        else:
            connection.close()

    def answered(self, connection: ClientConnection, count: int, pieces: int) -> None:
        """All is answered. `count` requests were pipelined, and their answers came in `pieces`."""
        if count:
            self.outbox.note(count, pieces)
        slots = self.slots
        slots.free += 1
        if slots.waiting:
            slots.call_next()
        self.give_back(connection)

    def close(self) -> None:
        self.is_closed = True
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()


class Outbox:
    """Batches small requests of one turn of the loop, because a send costs as much as all else.

    Requests for the same target go out in one piece.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[bytes, list[tuple[bytes, asyncio.Future[Response | None]]]] = {}
        # How many requests were answered in the last piece.
        self._answered_together = 1
        self._one_by_one = 0
        self._alone_until = 0.0

    def gathers(self, now: float) -> bool:
        """Whether a request should wait for others of this turn of the loop."""
        under_way = MAX_CONNECTIONS - self._pool.slots.free
        return (under_way > _FEW or self._answered_together > _FEW) and now >= self._alone_until

    def add(self, like: bytes, data: bytes, timeout_s: float) -> "asyncio.Future[Response | None]":
        """Return the future of the answer, or of `Broken`; of None if no connection was free.

        Requests with an equal `like` may be handled together by the server.
        """
        if not self._waiting:
            self._pool.loop.call_soon(self._send_all, timeout_s)
        answer: asyncio.Future[Response | None] = self._pool.loop.create_future()
        self._waiting.setdefault(like, []).append((data, answer))
        return answer

    def _send_all(self, timeout_s: float) -> None:
        waiting, self._waiting = self._waiting, {}
        now = monotonic()
        for alike in waiting.values():
            wanted = [(data, answer) for data, answer in alike if not answer.done()]
            for start in range(0, len(wanted), _MOST_TOGETHER):
                self._send(wanted[start : start + _MOST_TOGETHER], now, timeout_s)

    def _send(
        self, together: "list[tuple[bytes, asyncio.Future[Response | None]]]", now: float, timeout_s: float
    ) -> None:
        slots = self._pool.slots
        connection = self._pool.take() if slots.free else None
        answers = [answer for _, answer in together]
        if connection is None:
            for answer in answers:
                answer.set_result(None)
            return
        slots.free -= 1
        connection.ask_pipelined([data for data, _ in together], answers, now, timeout_s)  # type: ignore[arg-type]

    def note(self, count: int, pieces: int) -> None:
        self._answered_together = count
        if count <= _FEW:
            return
        if 2 * pieces < count:
            self._one_by_one = 0
            return
        self._one_by_one += 1
        if self._one_by_one >= _OFTEN:
            self._one_by_one = _OFTEN - 1
            self._alone_until = monotonic() + _ALONE_S
            self._answered_together = 1

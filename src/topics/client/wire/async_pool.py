"""The connections of one event loop, and how many requests may be under way in it."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from topics.client.wire.async_connection import Connection
from topics.client.wire.effects import Response

# Requests beyond so many wait for one to end; those that are silent on purpose are not counted.
MAX_CONNECTIONS = 100
# With no more requests under way than this, waiting for others gains nothing.
_FEW = 3
# So many go out in one piece: more of them leave server and client less to do at the same time.
_MOST_TOGETHER = 16
# A server that answers one by one, so many times without another, has taken them one by one; so does a proxy.
# Then each goes over a connection of its own, until it is tried again.
_OFTEN = 8
_ALONE_S = 1.0


class Places:
    """For so many requests at a time; the others wait. A semaphore takes four times as long."""

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
                self.call_next()  # it may have been called, and does not go
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
    """No other loop can use them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[Connection] = []
        self.places = Places(loop)
        self.outbox = Outbox(self)
        # Of readers, as long as anybody has them: what was noted in them is stored before the client closes.
        self.cursors: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.is_closed = False

    def take(self) -> Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable:
                return connection
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.is_usable and not self.is_closed:
            self.idle.append(connection)
        else:
            connection.close()

    def answered(self, connection: Connection) -> None:
        places = self.places
        places.free += 1
        if places.waiting:
            places.call_next()
        if (
            connection.is_usable and not self.is_closed
        ):  # `give_back`, without a call: this is done for each write
            self.idle.append(connection)
        else:
            connection.close()

    def failed(self) -> None:
        self.places.give_back()

    def answered_in_turn(self, count: int, pieces: int) -> None:
        self.outbox.note(count, pieces)

    def close(self) -> None:
        self.is_closed = True
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()


class Outbox:
    """Small requests of one turn of the loop, which go out together: those alike in one piece.

    To send and to receive takes as long as all else that is done for a request.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[bytes, list[tuple[bytes, asyncio.Future[Response | None]]]] = {}
        # How many were answered together the last time.
        self._company = 1
        self._one_by_one = 0
        self._alone_until = 0.0

    def gathers(self, now: float) -> bool:
        """Whether a request should wait for others of this turn."""
        under_way = MAX_CONNECTIONS - self._pool.places.free
        return (under_way > _FEW or self._company > _FEW) and now >= self._alone_until

    def add(self, like: bytes, data: bytes, timeout_s: float) -> "asyncio.Future[Response | None]":
        """Its answer, or `Broken`; None if it was not sent, for it would have to wait for a connection.

        Requests that are `like` each other may be taken together by the server.
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
        places = self._pool.places
        connection = self._pool.take() if places.free else None
        answers = [answer for _, answer in together]
        if connection is None:
            for answer in answers:
                answer.set_result(None)
            return
        places.free -= 1
        connection.ask_in_turn([data for data, _ in together], answers, now, timeout_s)  # type: ignore[arg-type]

    def note(self, count: int, pieces: int) -> None:
        self._company = count
        if count <= _FEW:
            return
        if 2 * pieces < count:
            self._one_by_one = 0
            return
        self._one_by_one += 1
        if self._one_by_one >= _OFTEN:
            self._one_by_one = _OFTEN - 1
            self._alone_until = monotonic() + _ALONE_S
            self._company = 1

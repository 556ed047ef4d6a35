"""The connections of one event loop, and how many requests may be under way in it."""

import asyncio
from collections import deque

from topics.client.wire.async_connection import Connection

# Requests beyond so many wait for one to end; those that are silent on purpose are not counted.
MAX_CONNECTIONS = 100


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

    def close(self) -> None:
        self.is_closed = True
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()

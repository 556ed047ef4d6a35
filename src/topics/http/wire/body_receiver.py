"""A large body of known length: the rest of it goes from the socket straight to where it stays.

    head and first piece ─▶ connection ─▶ rest of the body ─▶ receiver ─▶ next request ─▶ connection

Through the parser, bytes are copied three times or more between the kernel and the handler: into what a
protocol gets, out of the parser, behind what has come before, and with all of that when it outgrows its room.
"""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics.http.wire.connection import Connection
    from topics.http.wire.exchange import Exchange

# Less is copied sooner than protocols are changed.
LEAST_BYTES = 64 * 1024
_NO_ROOM = memoryview(b"")


class BodyReceiver(asyncio.BufferedProtocol):
    """Takes the place of its connection at the transport until the body is complete."""

    __slots__ = ("_at", "_connection", "_exchange", "_room")

    def __init__(self, connection: "Connection", exchange: "Exchange", size: int) -> None:
        """`size`: of the whole body, for which the request has taken room when its head came."""
        self._room = exchange.receive_into(size)
        self._at = exchange.received
        self._connection = connection
        self._exchange: Exchange | None = exchange

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._at :]

    def buffer_updated(self, count: int) -> None:
        connection, exchange, room, start = self._connection, self._exchange, self._room, self._at
        assert exchange is not None
        self._at += count
        if connection.mode:
            # The request was refused meanwhile, and nobody wants the rest.
            self._give_back()
            connection.receive_other(bytes(room[start : self._at]))
            return
        exchange.note_received(count)
        if self._at == len(room):
            # The transport has hold of the room until this returns, and a body in there would be copied.
            connection.pause_for_turn()
            connection.context.loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self._exchange is not None:
            self._give_back()
            self._connection.body_received()

    def _give_back(self) -> None:
        """A transport remembers how it was read before: the body must not stay for as long as that."""
        self._let_go()
        self._connection.take_reading_back()

    def _let_go(self) -> None:
        self._exchange, self._room = None, _NO_ROOM

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._let_go()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

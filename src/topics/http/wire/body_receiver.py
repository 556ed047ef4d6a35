"""A large body of known length: the rest of it goes from the socket straight to where it stays.

    head and first piece ─▶ connection ─▶ rest of the body ─▶ receiver ─▶ next request ─▶ connection

On the usual way, bytes are copied three times or more between the kernel and the handler: into what a
protocol gets, out of the parser, behind what has come before, and with all of that when it outgrows its room.
"""

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING

from topics.http.wire.channel import HTTP

if TYPE_CHECKING:
    from topics.http.wire.exchange import Exchange
    from topics.http.wire.http1 import Connection

# Less is copied sooner than protocols are changed.
LEAST_BYTES = 64 * 1024
_NO_ROOM = memoryview(b"")


def receive_rest(connection: "Connection", exchange: "Exchange") -> None:
    """Of the body of the current request, if much of it is still to come."""
    # One that comes in chunks says nothing of its length: both together are refused.
    size = int(exchange.headers.get(b"content-length", b"0"))
    # Behind a request that is the last, the parser has to see whatever comes.
    if size - exchange.received < LEAST_BYTES or exchange.answered or exchange.closes:
        return
    try:
        receiver = BodyReceiver(connection, exchange, size)
    except MemoryError:
        return  # there may be enough for what really comes
    connection.be_read_by(receiver)


class BodyReceiver(asyncio.BufferedProtocol):
    """Stands in for its connection with the transport until the body is complete."""

    __slots__ = ("_at", "_connection", "_exchange", "_room")

    def __init__(self, connection: "Connection", exchange: "Exchange", size: int) -> None:
        """`size`: of the whole body, for which the request has taken room when its head came."""
        come = exchange.body if exchange.pieces is None else exchange.pieces.getvalue()
        # Nobody else has these bytes: they are filled where they are, and become the body as they are.
        exchange.pieces = BytesIO(bytes(size))
        self._room = exchange.pieces.getbuffer()
        self._room[: len(come)] = come
        self._at = len(come)
        self._connection = connection
        self._exchange: Exchange | None = exchange

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._at :]

    def buffer_updated(self, count: int) -> None:
        connection, exchange, room, start = self._connection, self._exchange, self._room, self._at
        assert exchange is not None
        self._at += count
        if connection.mode != HTTP:
            # The request was refused meanwhile, and nobody wants the rest.
            self._give_back()
            connection.ignore(bytes(room[start : self._at]))
            return
        exchange.received += count
        if self._at == len(room):
            # The transport has hold of the room until this returns, and a body in there would be copied.
            connection.transport.pause_reading()
            connection.context.loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self._exchange is not None:
            self._give_back()
            self._connection.body_received()

    def _give_back(self) -> None:
        """A transport remembers how it was read before: the body must not stay for as long as that."""
        self._let_go()
        self._connection.be_read_by(self._connection)

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

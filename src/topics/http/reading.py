"""The input of a transport: pausing it, discarding it, and receiving a large body straight into memory.

    head and first piece ─▶ connection ─▶ rest of the body ─▶ BodyReceiver ─▶ next request ─▶ connection

Through the parser, bytes are copied three times or more between the kernel and the handler. A receiver of a
large body of known length reads from the socket into the memory where the body stays.
"""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics.http.connection import Connection
    from topics.http.exchange import Exchange


class ReadControl:
    __slots__ = ("_discarded", "_transport", "is_half_closed", "is_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._discarded = 0
        self.is_paused = False
        # The client has ended its side of the connection.
        self.is_half_closed = False

    def pause(self) -> None:
        if not (self.is_paused or self.is_half_closed or self._transport.is_closing()):
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_paused and not (self.is_half_closed or self._transport.is_closing()):
            self.is_paused = False
            self._transport.resume_reading()

    def half_close(self) -> None:
        """Note that no more input comes."""
        self.is_half_closed = True

    def hand_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the input that follows to another protocol."""
        # A transport finds out how to read for its protocol when its reading begins.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        if not self.is_paused:
            self._transport.resume_reading()

    def linger(self) -> None:
        """End our side. The client still gets to read the last reply: closing at once, with input that is
        not read, would reset the connection."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume()

    def discard(self, size: int, most: int) -> None:
        """Count input that nobody reads, and abort the connection when it is too much."""
        self._discarded += size
        if self._discarded > most:
            self._transport.abort()


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

"""Connections that outlive one answer: a body without end, or another protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.http.wire.answer_heads import HeaderList

if TYPE_CHECKING:
    from topics.http.wire.channel import Channel


class _Held:
    """What a stream and an upgraded connection have in common. Without a connection, it is closed."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Channel | None) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection is None or self._connection.transport.is_closing()

    def buffered(self) -> int:
        """Bytes written that the client has not taken yet."""
        return 0 if self._connection is None else self._connection.buffered()

    @property
    def choked(self) -> bool:
        """Too much is buffered to write more now; `drain` waits for the end of that."""
        return self._connection is not None and self._connection.choked

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the connection ends, by our doing or the client's."""
        if self._connection is None or not self._connection.add_closer(callback):
            callback()

    async def drain(self) -> None:
        """Wait until the client has taken enough, or has gone."""
        if self._connection is not None:
            await self._connection.drained()

    def abort(self) -> None:
        """End the connection without waiting for what is still buffered."""
        if self._connection is not None:
            self._connection.transport.abort()


class Stream(_Held):
    """A body sent piece by piece. It ends with its connection: one that streamed for hours is not reused."""

    __slots__ = ("_chunked",)

    def __init__(
        self, connection: Channel | None, content_type: bytes, headers: HeaderList | None, *, chunked: bool
    ) -> None:
        super().__init__(connection)
        self._chunked = chunked
        if connection is not None:
            heads = connection.context.heads
            connection.transport.write(
                heads.unbounded(content_type, headers, chunked=chunked, connection=b"close")
            )

    def write(self, data: bytes) -> None:
        """Goes out at once. An empty piece would end a chunked body, so it is left out."""
        connection = self._connection
        if not data or connection is None or connection.transport.is_closing():
            return
        connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def close(self) -> None:
        """End the body properly; what was written before still reaches a client that reads."""
        connection = self._connection
        if connection is None or connection.transport.is_closing():
            return
        if self._chunked:
            connection.transport.write(b"0\r\n\r\n")
        connection.transport.close()


class Upgraded(_Held):
    """The bare connection, for a protocol other than HTTP."""

    __slots__ = ("headers",)

    def __init__(self, connection: Channel | None, headers: dict[bytes, bytes]) -> None:
        super().__init__(connection)
        self.headers = headers

    def write(self, data: bytes) -> None:
        connection = self._connection
        if data and connection is not None and not connection.transport.is_closing():
            connection.transport.write(data)

    def set_receiver(self, receiver: Callable[[bytes], None]) -> None:
        """Gets every byte from here on, and first those that came right behind the request."""
        if self._connection is not None:
            self._connection.set_receiver(receiver)

    def pause_reading(self) -> None:
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        if self._connection is not None:
            self._connection.resume_reading()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.close()

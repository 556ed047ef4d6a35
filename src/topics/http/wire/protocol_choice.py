"""Which version of HTTP a client speaks: told by TLS (ALPN), or by its first bytes.

What speaks HTTP/2 is imported for the first client that does, on a thread: others do not wait for it.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from topics.http.late_imports import load

if TYPE_CHECKING:
    from topics.http.wire.context import WireContext

ALPN = ["h2", "http/1.1"]
# No request of HTTP/1.1 begins like this. What comes behind it is checked by those who speak HTTP/2.
PREFACE = b"PRI * HTTP/2.0\r\n"
_MODULE = "topics.http.wire.http2.connection"


class SecureStart(asyncio.Protocol):
    """With TLS, until it is known what was agreed on."""

    def __init__(self, context: "WireContext") -> None:
        self._context = context

    def connection_made(self, transport: Any) -> None:
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            _Loading(self._context, transport, None).begin()
            return
        from topics.http.wire.connection import Connection

        connection = Connection(self._context)
        transport.set_protocol(connection)
        connection.connection_made(transport)


def speak_http2(context: "WireContext", transport: Any, early: bytes) -> None:
    """From a connection that has read `early`."""
    _Loading(context, transport, early).begin()


class _Loading(asyncio.Protocol):
    """Between the two protocols: nothing is read."""

    def __init__(self, context: "WireContext", transport: asyncio.Transport, early: bytes | None) -> None:
        self._context = context
        self._transport = transport
        self._early = early
        self._later = b""
        self._gone = False

    def begin(self) -> None:
        self._transport.set_protocol(self)
        self._transport.pause_reading()
        task = self._context.loop.create_task(self._go_on())
        self._context.tasks.add(task)
        task.add_done_callback(self._context.tasks.discard)

    async def _go_on(self) -> None:
        await load(_MODULE)
        from topics.http.wire.http2.connection import Http2Connection

        if self._gone or self._transport.is_closing():
            return
        connection = Http2Connection(self._context)
        self._transport.set_protocol(connection)
        self._transport.resume_reading()
        if self._early is None:
            connection.connection_made(self._transport)
            if self._later:
                connection.data_received(self._later)
        else:
            connection.take_over(self._transport, self._early + self._later)

    def data_received(self, data: bytes) -> None:
        """What had been decrypted before."""
        self._later += data

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True

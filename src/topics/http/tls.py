"""TLS, and the choice between HTTP/1.1 and HTTP/2: by ALPN, or by the first bytes of a connection.

The code for HTTP/2 is imported on a thread when the first client speaks it, so that others do not wait.
"""

import asyncio
import ssl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topics.core import ConfigError, Settings

if TYPE_CHECKING:
    from topics.http.context import WireContext

ALPN = ["h2", "http/1.1"]
# No request of HTTP/1.1 begins like this. What comes behind it is checked by those who speak HTTP/2.
PREFACE = b"PRI * HTTP/2.0\r\n"


class SecureStart(asyncio.Protocol):
    """With TLS, until it is known what was agreed on."""

    def __init__(self, context: "WireContext") -> None:
        self._context = context

    def connection_made(self, transport: Any) -> None:
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            _Loading(self._context, transport, None).begin()
            return
        from topics.http.connection import Connection

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
        await asyncio.to_thread(import_module, "topics.http.http2")
        from topics.http.http2 import Http2Connection

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
        """Keep input that had been decrypted before."""
        self._later += data

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """None without a certificate: then what is spoken is not encrypted."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise ConfigError("TOPICS_TLS_CERT and TOPICS_TLS_KEY: both are needed, or none of them")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(ALPN)
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    cert, key = settings.tls_cert, settings.tls_key
    assert cert is not None
    # A trial first: what is loaded in part would replace what was whole.
    for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        try:
            each.load_cert_chain(cert, key, password=_no_password)
        except FileNotFoundError as error:
            missing = cert if not Path(cert).exists() else key
            raise ConfigError(f"TOPICS_TLS_CERT, TOPICS_TLS_KEY: {missing}: {error.strerror}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"TOPICS_TLS_CERT, TOPICS_TLS_KEY: {cert} and {key} cannot be used together: {reason}"
            ) from None


def _no_password() -> str:
    """A server that starts by itself cannot be asked for one."""
    raise ValueError("the key is encrypted")

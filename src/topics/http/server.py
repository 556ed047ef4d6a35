"""The listening side: bind, tell where, serve until a signal, then drain and stop."""

import asyncio
import contextlib
import errno
import inspect
import logging
import os
import signal
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from topics.core import ConfigError, Settings
from topics.http.admission.address import (
    is_loopback,
    listen_address,
    parse_base_path,
    refuse_exposure_without_keys,
    shown_address,
)
from topics.http.admission.auth import KeyRing, Tickets
from topics.http.admission.callers import Callers
from topics.http.admission.readiness import Readiness
from topics.http.connection import Connection
from topics.http.context import Limits, Timeouts, WireContext
from topics.http.request_log import RequestLog
from topics.http.routing import Route, RouteTree
from topics.http.tls import SecureStart, load_certificate, tls_context

logger = logging.getLogger("topics.http")

DRAIN_S = 10.0
_DRAIN_POLL_S = 0.01
_BACKLOG = 4096
# A client that connects and then says nothing does not keep its place.
_HANDSHAKE_S = 15.0
# A peer that vanished without a word is noticed after two minutes.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))

Callback = Callable[[], Awaitable[None] | None]


class Server:
    """`on_shutdown` runs when draining begins (end streams and parked polls there), `on_stopped` when no
    request is left (the place for a last checkpoint)."""

    def __init__(
        self,
        settings: Settings,
        keyring: KeyRing,
        routes: Iterable[Route],
        readiness: Readiness,
        *,
        limits: Limits | None = None,
        tickets: Tickets | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._settings = settings
        self._keyring = keyring
        self.routes = tuple(routes)
        self._tree = RouteTree(self.routes, parse_base_path(settings.base_path).encode())
        self.find_route = self._tree.find
        self.request_log = RequestLog(settings)
        self._gate = readiness
        self._limits = limits or Limits()
        self._tickets = tickets or Tickets()
        self._drain_s = drain_s
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.AbstractServer] = []
        self._timeouts: Timeouts | None = None
        self._tls: ssl.SSLContext | None = None
        self._stopping = asyncio.Event()
        self.stop_reason = ""
        self.on_hangup: Callable[[], None] = _ignore
        self.on_shutdown: list[Callback] = []
        self.on_stopped: list[Callback] = []
        self.addresses: list[tuple[str, int]] = []

    async def start(self) -> None:
        self.bind()
        await self.listen()

    def bind(self) -> None:
        """Take the address: that it is free is known from here on. Clients cannot connect yet."""
        refuse_exposure_without_keys(self._settings, self._keyring)
        self._tls = tls_context(self._settings)
        if self._settings.port_file is not None:
            require_folder_of(self._settings.port_file)
        host, port = listen_address(self._settings)
        self._sockets = bind(host, port)
        self.addresses = [bound.getsockname()[:2] for bound in self._sockets]
        self.context = WireContext(
            settings=self._settings,
            routes=self._tree,
            keyring=self._keyring,
            callers=Callers(
                self._settings,
                keys_needed=self._keyring.enabled,
                bound=self.addresses,
                is_exposed=not is_loopback(host),
            ),
            readiness=self._gate,
            loop=asyncio.get_running_loop(),
            limits=self._limits,
            tickets=self._tickets,
            request_log=self.request_log,
        )

    async def listen(self) -> None:
        """Serve. The readiness decides whether data requests are answered yet."""
        try:
            # Before the file appears: a client that reads it may connect in the same instant.
            for bound in self._sockets:
                bound.listen(_BACKLOG)
            if self._settings.port_file is not None:
                write_port_file(self._settings.port_file, self.address)
        except OSError as error:
            self._unbind()
            # Another server has bound it in the same moment, and was first.
            raise cannot_listen(*self.address, error) from None
        except ConfigError:
            self._unbind()
            raise
        begin: type[Connection | SecureStart] = Connection if self._tls is None else SecureStart
        for bound in self._sockets:
            self._listeners.append(
                await self.context.loop.create_server(
                    lambda: begin(self.context),
                    sock=bound,
                    backlog=_BACKLOG,
                    ssl=self._tls,
                    ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
                )
            )
        self._timeouts = Timeouts(self.context)
        self._timeouts.start()

    def reload_certificate(self) -> None:
        """Connections that come from now on get what is in the files now; those that are there go on."""
        if self._tls is not None:
            try:
                load_certificate(self._tls, self._settings)
            except ConfigError as error:
                logger.error("%s; the certificate stays as it was", error)

    @property
    def address(self) -> tuple[str, int]:
        return self.addresses[0]

    async def serve_until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: self.on_hangup())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_stop, number.name)
        try:
            await self._stopping.wait()
        finally:
            await self.stop()
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def request_stop(self, reason: str = "") -> None:
        """`reason`: what the log says about it. Without one, it does not say anything."""
        self.stop_reason = self.stop_reason or reason
        self._stopping.set()

    async def stop(self) -> None:
        """Take no more work, end the streams, let requests finish for a while, then close everything."""
        self._gate.drain()
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self.context.connections) if self._timeouts is not None else ():
            connection.wind_down()
        await _call_all(self.on_shutdown)
        if self._timeouts is None:
            self._unbind()  # no client could ever come
        else:
            await self._drain()
            await self._cut_off(self._timeouts)
            self.context.close_callbacks.finish()
        await _call_all(self.on_stopped)

    def _unbind(self) -> None:
        for bound in self._sockets:
            bound.close()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_s
        # Looking now and then costs nothing while serving; counting every request would.
        while self.context.busy() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)

    async def _cut_off(self, timeouts: Timeouts) -> None:
        timeouts.stop()
        tasks = tuple(self.context.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        for connection in (*self.context.connections, *self.context.streams):
            connection.close()
        # Closing waits for clients to read what they were sent, which some never do.
        for _ in range(50):
            if not (self.context.connections or self.context.streams):
                return
            await asyncio.sleep(_DRAIN_POLL_S)
        for connection in (*self.context.connections, *self.context.streams):
            connection.abort()
        await asyncio.sleep(0)


def bind(host: str, port: int) -> list[socket.socket]:
    """One listening socket for each address of the host, all on the same port."""
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot resolve {host}: {error}") from None
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(infos):
        listener = socket.socket(family, kind, protocol)
        try:
            _prepare(listener)
            listener.bind((address[0], port, *address[2:]))
        except OSError as error:
            listener.close()
            failure = error
            # A host may resolve to addresses this machine does not have, as `::1` without IPv6.
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            break
        port = listener.getsockname()[1]
        sockets.append(listener)
    if failure is not None and (not sockets or failure.errno == errno.EADDRINUSE):
        for listener in sockets:
            listener.close()
        raise cannot_listen(host, port, failure)
    return sockets


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host or '*'}:{port}: {error.strerror}")


def _prepare(listener: socket.socket) -> None:
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # Accepted connections inherit these.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        listener.setsockopt(socket.IPPROTO_TCP, option, value)


def require_folder_of(path: str) -> None:
    """Told before the data is read. Whether the port file can be written shows when it is."""
    try:
        os.stat(os.path.join(Path(path).parent, "."))
    except OSError as error:
        raise _no_port_file(path, error) from None


def _no_port_file(path: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write the port file {path}: {error.strerror}")


def write_port_file(path: str, address: tuple[str, int]) -> None:
    """A process that waits for the file never sees half of it."""
    text = shown_address(*address)
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=target.name + ".", dir=target.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            # mkstemp makes it readable by us alone; the address is for all users of the machine.
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise _no_port_file(path, error) from None


def _ignore() -> None:
    return None


async def _call_all(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        try:
            result = callback()
            if inspect.isawaitable(result):
                await result
        except Exception:
            logger.exception("a shutdown callback failed")

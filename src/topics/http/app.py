"""The server on a node: keys, routes, listening socket, metrics and traces."""

import asyncio
import logging
import os
from collections.abc import Callable
from importlib import import_module

from topics.core import Clock, ConfigError, Settings
from topics.engine.node import Node
from topics.flow.upkeep import keep_freed_blocks
from topics.http.admission.address import parse_base_path, refuse_exposure_without_keys, shown_address
from topics.http.admission.auth import KeyRing, read_keys
from topics.http.admission.callers import parse_hosts, parse_origins
from topics.http.admission.readiness import Readiness
from topics.http.console import routes as console
from topics.http.metrics import routes as metrics  # noqa: F401
from topics.http.routes import (  # noqa: F401
    admin,
    appends,
    arrow_append,
    auth,
    cursors,
    deletes,
    pipelines,
    probes,
    queues,
    reads,
    routers,
    scan,
    segments,
    socket,
    stages,
    tail,
    topics,
    watch,
    work,
)
from topics.http.routes.service import Service
from topics.http.routes.service import routes as declared
from topics.http.routing import Route
from topics.http.server import Server
from topics.http.tls import tls_context
from topics.http.tracing import start_tracing
from topics.storage import Filesystem

log = logging.getLogger("topics")

# Modules that a start does not need are imported so long after it.
REST_S = 2.0


def keys_of(settings: Settings) -> KeyRing:
    """Raises for keys that cannot be read, and for an address that needs some when there are none."""
    keyring = KeyRing.of(settings)
    parse_hosts(settings.allowed_hosts)
    parse_origins(settings.cors_origins)
    parse_base_path(settings.base_path)
    tls_context(settings)
    refuse_exposure_without_keys(settings, keyring)
    return keyring


def fields(**about: object) -> dict[str, object]:
    """Return the fields of a line of the log, besides its message."""
    return {"fields": about}


def all_routes(service: Service) -> list[Route]:
    """Make the routes that the modules imported above declare."""
    page = console.page_routes(service.base_path) if service.settings.console else []
    return [*page, *probes.probe_routes(service), *declared.bind(service)]


class _ServerStopped(Exception):
    """There is no point in recovering any further."""


class Application:
    def __init__(self, settings: Settings, fs: Filesystem | None = None, clock: Clock | None = None) -> None:
        self._keyring = keys_of(settings)
        self.node = node = Node(settings, fs, clock)
        node.engine.reserve.let_start()
        self.readiness = Readiness(lambda: node.progress, settings.max_body_bytes)
        self.service = service = Service(node, self._keyring, self.readiness)
        self._tracing = start_tracing(os.environ) if settings.tracing else None
        routes = all_routes(service)
        if self._tracing is not None:
            routes = self._tracing.instrument(routes)
        self.server = Server(settings, self._keyring, routes, self.readiness, tickets=service.tickets)
        service.attach(self.server)
        if self._tracing is not None:
            self.server.request_log.trace(self._tracing)
            node.span = self._tracing.span
        self.server.on_hangup = self.reload
        self.server.on_shutdown += [self._tell_stopping, service.streams.shut_down, service.end_waiting]
        self.server.on_shutdown.append(self.node.routers.readers.release_all)
        self.server.on_stopped += [self._close, self._stop_tracing]
        # Told when data requests are answered.
        self.on_ready: list[Callable[[], None]] = []
        # Told when whatever lies in files is to be read again: the log's file, certificates.
        self.on_reload: list[Callable[[], None]] = [self.server.reload_certificate]

    async def run(self) -> None:
        """Serve until a signal. Probes answer from the start, data once recovery is over."""
        keep_freed_blocks()
        serving = asyncio.create_task(self.server.serve_until_signal())
        await asyncio.sleep(0)  # from here on signals are heard
        try:
            self.server.bind()
            store = self.node.engine.store
            store.use_descriptors(self.server.context.connection_limit.left_for_segments)
            self.server.context.relieve = store.let_go
            await self._open()
            self._tell_ready()
            for tell in self.on_ready:
                tell()
            # On a thread, while clients are served: none of them has to wait when the first socket comes.
            loop = asyncio.get_running_loop()
            late = "topics.http.websocket"
            loop.call_later(REST_S, lambda: loop.run_in_executor(None, import_module, late))
        except _ServerStopped:
            log.info("stopped while recovering")
        except BaseException:
            self.server.request_stop()
            await serving
            raise
        await serving

    async def _open(self) -> None:
        if self.node.is_new:
            # A client that can connect is answered: there is nothing that it would have to wait for.
            await self.recover()
            await self.server.listen()
            self._go_on()
        else:
            await self.server.listen()
            log.info("recovering", extra=fields(address=self._addresses(), data_dir=self._data_dir()))
            await self.recover()

    async def recover(self) -> None:
        with self.node.span("recovery"):
            await asyncio.get_running_loop().run_in_executor(None, self._recover)
        self._go_on()
        self.node.run()
        self.readiness.admit()

    def _recover(self) -> None:
        self.node.recover(self._go_on)
        self.node.disk.make_reserve(is_hasty=True)

    def reload(self) -> None:
        """Read again what an operator may have changed. What cannot be read stays as it was."""
        for reload in self.on_reload:
            reload()
        try:
            keys = read_keys(self.node.settings)
        except ConfigError as error:
            log.error("%s; the keys stay as they were", error)
            return
        gone = self._keyring.replace(keys)
        self.server.context.known_heads.forget()
        if gone:
            self.service.streams.end_revoked()
            self.service.end_waiting(of_revoked=True)
        names = ", ".join(sorted(key.name for key in gone)) or "none"
        log.info("settings were read again: %d keys are known, gone: %s", len(self._keyring.keys), names)

    def _go_on(self, _: float = 1.0) -> None:
        """Called by the recovery too, on its thread."""
        if self.readiness.draining:
            # As safe as a crash, and the stop does not have to wait for it.
            raise _ServerStopped

    # Lines of the log about the start and the stop

    def _addresses(self) -> str:
        return ", ".join(shown_address(*address) for address in self.server.addresses)

    def _data_dir(self) -> str:
        return os.path.abspath(self.node.settings.data_dir)

    def _tell_ready(self) -> None:
        about = fields(
            data_dir=self._data_dir(),
            topics=len(self.node.engine.sorted_names),
            keys="asked for" if self._keyring.enabled else "not asked for",
            recovery_ms=round(self.node.recovery_seconds * 1000, 1),
            disk_free_bytes=self.node.disk.room().free_bytes,
            disk_reserve_bytes=self.node.disk.reserve_bytes,
        )
        log.info("listening on %s", self._addresses(), extra=about)

    def _tell_stopping(self) -> None:
        if self.server.stop_reason:
            context = self.server.context
            about = fields(connections=len(context.connections), streams=len(context.streams))
            log.info("stopping: %s", self.server.stop_reason, extra=about)

    async def _close(self) -> None:
        flushed = await self.node.close()
        if flushed is None:
            return
        about = fields(
            journal_bytes=flushed.journal_bytes,
            sealed_runs=flushed.sealed_runs,
            checkpoint="written" if flushed.is_checkpointed else "not written",
            took_ms=round(flushed.took_s * 1000, 1),
        )
        if flushed.is_clean:
            log.info("stopped: everything is flushed", extra=about)
        else:
            log.warning("stopped: writes had failed, and not everything is flushed", extra=about)

    async def _stop_tracing(self) -> None:
        if self._tracing is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._tracing.stop)

"""The whole server put together: engine, background work, routes, listening socket."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from topics.flow.commit_loop import CommitLoop
from topics.flow.queues.registry import Queues
from topics.flow.routers.background import RouterPass
from topics.flow.routers.journal import RouterJournal
from topics.flow.routers.registry import Routers
from topics.flow.upkeep import Span, Upkeep
from topics.flow.watch.fanout import Fanout
from topics.http.door.keys import KeyRing
from topics.http.door.listen_address import refuse_exposure_without_keys
from topics.http.door.readiness import Readiness
from topics.http.door.stream_slots import StreamSlots
from topics.http.metrics.figures import Figures
from topics.http.metrics.routes import Metrics
from topics.http.openapi.routes import OpenApi
from topics.http.routes.admin import AdminRoutes
from topics.http.routes.bulk import BulkPlane
from topics.http.routes.probes import Probes
from topics.http.routes.queues import QueueRoutes
from topics.http.routes.records import RecordRoutes
from topics.http.routes.routers import RouterRoutes
from topics.http.routes.service import Service
from topics.http.routes.socket import SocketRoutes
from topics.http.routes.topics import TopicRoutes
from topics.http.routes.watch import WatchRoutes
from topics.http.routes.work import WorkRoutes
from topics.http.server import Server
from topics.http.tracing import start_tracing
from topics.http.wire.routing import Route
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery
from topics.storage.cold_note import settle_cold_dir
from topics.storage.directories import Directories
from topics.storage.filesystem import Filesystem
from topics.values.clock import Clock, SystemClock
from topics.values.settings import MAX_SEQ, Settings

log = logging.getLogger("topics")

# A clean stop seals what is left only when replaying it would be slow.
SEAL_ON_STOP_BYTES = 64 * 1024 * 1024


class _Stopped(Exception):
    """There is no point in recovering any further."""


class Application:
    def __init__(self, settings: Settings, fs: Filesystem | None = None, clock: Clock | None = None) -> None:
        self._fs = fs or Filesystem()
        self._clock = clock or SystemClock()
        self._keyring = KeyRing.parse(settings.api_keys)
        refuse_exposure_without_keys(settings, self._keyring)
        self._fs.make_dirs(settings.data_dir)
        directories = Directories(settings.data_dir)
        self._lock = self._fs.lock(directories.lock)
        self.settings = settings = _with_cold_dir(self._fs, directories, settings)
        self._progress = 0.0
        self.readiness = Readiness(lambda: self._progress)
        self.engine = Engine(settings, self._fs, self._clock)
        self.service = Service(self.engine, settings)
        self.bulk = BulkPlane(self.service)
        self.admin = AdminRoutes(self.service)
        self.queues = Queues(self.engine)
        self.routers = Routers(self.engine)
        self._router_journal = RouterJournal(self.engine, self.routers)
        self.engine.extensions.append(self._router_journal)
        self.service.pull = self.routers.pull
        self.service.pull_from = self.routers.pull_from
        self.service.routers_touching = self.routers.touching
        self.stream_slots = StreamSlots(settings)
        self.fanout = Fanout(
            self.engine,
            lambda topic: self.service.pull(topic),
            self.service.governor,
            self.service.pacer.protect,
        )
        self.watches = WatchRoutes(self.service, self.fanout, self.stream_slots)
        self.sockets = SocketRoutes(self.service, self.fanout, self.stream_slots)
        self._tracing = start_tracing(os.environ) if settings.tracing else None
        routes = self._routes() if self._tracing is None else self._tracing.instrument(self._routes())
        self.server = Server(settings, self._keyring, routes, self.readiness)
        self._span: Span = nullcontext
        if self._tracing is not None:
            self.server.request_log.trace(self._tracing)
            self._span = self._tracing.span
        self.figures = Figures(self.metrics, self.server, self.service, self.routers, self.bulk.cursors)
        self.server.on_shutdown += [self.watches.end_streams, self.sockets.end_sockets]
        self.server.on_shutdown.append(self._end_waiting)
        self.server.on_stopped += [self.finish, self._stop_tracing]
        # Told when data requests are answered.
        self.on_ready: list[Callable[[], None]] = []
        self._recovered = False

    def _routes(self) -> list[Route]:
        probes = Probes(self.readiness, lambda: len(self.engine.sorted_names))
        self.metrics = Metrics(self.engine, self.readiness, probes.uptime_ms)
        self.metrics.gauges["sse_connections"] = lambda: self.stream_slots.open
        self.metrics.gauges["watch_sessions"] = lambda: len(self.watches.sessions)
        self.metrics.gauges["routers"] = lambda: len(self.routers.table)
        self.work = WorkRoutes(self.service, self.queues, self.stream_slots)
        routes = [
            *probes.routes(key_needed=self.settings.probe_auth),
            *self.metrics.routes(),
            *TopicRoutes(self.service).routes(),
            *RecordRoutes(self.service).routes(),
            *self.bulk.routes(),
            *self.admin.routes(),
            *RouterRoutes(self.routers).routes(),
            *self.watches.routes(),
            *self.sockets.routes(),
            *QueueRoutes(self.service, self.queues).routes(),
            *self.work.routes(),
        ]
        routes += OpenApi(routes).routes(key_needed=self.settings.probe_auth)
        return routes

    async def run(self) -> None:
        """Serve until a signal. Probes answer from the start, data once recovery is over."""
        await self.server.start()
        self.engine.store.use_descriptors(self.server.context.connection_limit.left_for_segments)
        self.server.context.relieve = self.engine.store.let_go
        serving = asyncio.create_task(self.server.serve_until_signal())
        try:
            await self.recover()
            host, port = self.server.address
            log.info("listening on %s:%d, %d topics", host, port, len(self.engine.sorted_names))
            for tell in self.on_ready:
                tell()
        except _Stopped:
            log.info("stopped while recovering")
        except BaseException:
            self.server.request_stop()
            await serving
            raise
        await serving

    async def recover(self) -> None:
        loop = asyncio.get_running_loop()
        recovery = Recovery(self.engine, self._note_progress)
        with self._span("recovery"):
            self._checkpointer = await loop.run_in_executor(None, recovery.run)
        if self.readiness.draining:
            raise _Stopped
        self.service.governor.start(loop)
        pacer = self.service.pacer
        self.commit = CommitLoop(self.engine, loop, self.service.governor, lambda: pacer.pacing)
        self.upkeep = Upkeep(self.engine, self.commit, self._checkpointer, self._span)
        self.upkeep.start()
        self.bulk.start()
        self.admin.start(self.upkeep)
        self.forwarding = RouterPass(self.routers, loop, self.service.governor)
        self._router_journal.recovered()
        self._recovered = True
        self.figures.recovered(self.commit, self.upkeep, self._checkpointer)
        # What exists now stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        self.readiness.admit()

    def _note_progress(self, progress: float) -> None:
        """Called by the recovery, on its thread."""
        if self.readiness.draining:
            # As safe as a crash, and nobody has to wait for it.
            raise _Stopped
        self._progress = progress

    def _end_waiting(self) -> None:
        self.work.end_streams()
        for parked in tuple(self.service.parked):
            parked.release()

    async def _stop_tracing(self) -> None:
        if self._tracing is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._tracing.stop)

    async def finish(self) -> None:
        """A last checkpoint, and the directory is free."""
        if not self._recovered:
            return
        self.service.governor.stop()
        self.forwarding.stop()
        await self.admin.purges.stop()
        await self.upkeep.stop()
        await self.commit.drain()
        self.commit.close()
        if self.engine.queue.failure is None:
            large = self.engine.journal.retained_bytes() > SEAL_ON_STOP_BYTES
            self._checkpointer.run_now(everything=large)
        self.engine.close(clean=self.engine.queue.failure is None)
        self.unlock()

    def unlock(self) -> None:
        """Others may use the data directory."""
        self._fs.unlock(self._lock)


def _with_cold_dir(fs: Filesystem, directories: Directories, settings: Settings) -> Settings:
    """Without a second tier nothing is moved there any more; what had been moved is still read."""
    cold_dir = settle_cold_dir(fs, directories, settings.cold_dir)
    if cold_dir is None or settings.cold_dir is not None:
        return settings
    log.warning("TOPICS_COLD_DIR is not set; old segments are still read from %s", cold_dir)
    return replace(settings, cold_dir=cold_dir, hot_retain_segments=MAX_SEQ)

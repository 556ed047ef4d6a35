"""Everything the metrics show beyond the basics, put together."""

from __future__ import annotations

from time import monotonic

from topics.flow.commit_loop import CommitLoop
from topics.flow.cursors import Cursors
from topics.flow.routers.registry import Routers
from topics.flow.upkeep import Upkeep
from topics.http.metrics.flow import FlowFigures
from topics.http.metrics.http import HttpFigures
from topics.http.metrics.log import LogFigures
from topics.http.metrics.process import ProcessFigures
from topics.http.metrics.routes import Metrics
from topics.http.routes.service import Service
from topics.http.server import Server
from topics.log.seal.checkpoint import Checkpointer


class Figures:
    def __init__(
        self, metrics: Metrics, server: Server, service: Service, routers: Routers, cursors: Cursors
    ) -> None:
        self._began = monotonic()
        self._took_s: float | None = None
        self._log = LogFigures(service.engine, self._recovery_seconds)
        metrics.more += [
            HttpFigures(server, service).families,
            self._log.families,
            FlowFigures(service.engine, routers, cursors).families,
            ProcessFigures().families,
        ]

    def recovered(self, commit: CommitLoop, upkeep: Upkeep, checkpointer: Checkpointer) -> None:
        self._took_s = monotonic() - self._began
        self._log.commit = commit
        self._log.upkeep = upkeep
        self._log.checkpointer = checkpointer

    def _recovery_seconds(self) -> float:
        return monotonic() - self._began if self._took_s is None else self._took_s

"""Real servers in threads: parts of one on routes of the test's own, or the whole application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.http.running import Running
from tests.http.streaming import RunningApp
from tests.support import eventually, raw_request
from topics.http.door.readiness import Readiness
from topics.http.wire.context import Limits
from topics.http.wire.routing import Route
from topics.values.settings import Settings

Serve = Callable[..., Running]


@pytest.fixture
def loop_errors() -> Iterator[list[str]]:
    """What the event loop complains about: exceptions that escaped from our callbacks."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(self.format(record))

    collector = Collector(logging.WARNING)
    logging.getLogger("asyncio").addHandler(collector)
    yield messages
    logging.getLogger("asyncio").removeHandler(collector)


@pytest.fixture
def serve(loop_errors: list[str]) -> Iterator[Serve]:
    """`serve(routes, keys=…, limits=…, readiness=…, **settings)` starts a server that ends with the test."""
    servers: list[Running] = []

    def start(
        routes: list[Route],
        *,
        keys: str = "",
        limits: Limits | None = None,
        readiness: Readiness | None = None,
        **settings: Any,
    ) -> Running:
        if readiness is None:
            readiness = Readiness()
            readiness.admit()
        running = Running(routes, Settings(port=0, **settings), keys, readiness, limits or Limits())
        servers.append(running)
        return running

    yield start
    for running in servers:
        running.stop()
        assert not running.server.context.connections
        assert not running.server.context.streams
        assert running.inflight() == 0
    assert not loop_errors


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return partial(eventually, within_s=5.0)


@pytest.fixture
def raw() -> Callable[..., bytes]:
    return raw_request


@pytest.fixture
def start(tmp_path: Path, loop_errors: list[str]) -> Iterator[Callable[..., RunningApp]]:
    """`start(clock=…, **settings)` runs the whole application; it ends with the test."""
    apps: list[RunningApp] = []

    def begin(**settings: Any) -> RunningApp:
        apps.append(RunningApp(tmp_path / f"data-{len(apps)}", **settings))
        return apps[-1]

    yield begin
    for app in apps:
        app.stop()
    assert not loop_errors

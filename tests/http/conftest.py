"""Real servers in threads: parts of one on routes of the test's own, or the whole application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.http.queue_app import QueueApp
from tests.http.running import Running
from tests.http.streaming import RunningApp
from tests.support import eventually, raw_request
from topics.core.settings import Settings
from topics.http.admission.readiness import Readiness
from topics.http.context import Limits
from topics.http.routing import Route

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
        settings.setdefault("allowed_hosts", "*")
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
    """`start(kind, clock=…, **settings)` runs the whole application; it ends with the test."""
    apps: list[RunningApp] = []

    def begin(kind: type[RunningApp] = RunningApp, **settings: Any) -> RunningApp:
        apps.append(kind(tmp_path / f"data-{len(apps)}", **settings))
        return apps[-1]

    yield begin
    for app in apps:
        app.stop()
    assert not loop_errors


@pytest.fixture
def app(start: Callable[..., RunningApp]) -> RunningApp:
    """The whole application with the usual settings."""
    return start()


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueApp]:
    """One for all tests of a module, with a clock that only moves when told to."""
    app = QueueApp(tmp_path_factory.mktemp("shared"))
    yield app
    app.stop()


@pytest.fixture
def queue_app(shared_app: QueueApp) -> Iterator[QueueApp]:
    """The shared one with an empty queue named q; every stream leaves without a trace."""
    shared_app.call("DELETE", "/v0/topics/q")
    shared_app.put()
    yield shared_app
    shared_app.hang_up()
    running = shared_app.app
    eventually(
        lambda: shared_app.inside(
            lambda: not running.node.queues.workers() and not running.service.streams.taken
        )
    )

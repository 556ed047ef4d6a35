"""Real servers for black-box tests: one shared by each module, more where a test needs its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams

Boot = Callable[..., Server]
NewTopic = Callable[..., TopicHandle]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by a module: tests keep to topics of their own."""
    server = Server(tmp_path_factory.mktemp("shared") / "data").start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count(1))


@pytest.fixture
def new_topic(server: Server, names: Iterator[str]) -> NewTopic:
    """`new_topic(cap_records=3)`: a topic nobody else uses, on the shared server."""

    def make(**config: Any) -> TopicHandle:
        return server.topic(next(names), **config)

    return make


@pytest.fixture
def unborn(server: Server, names: Iterator[str]) -> TopicHandle:
    """A topic that does not exist yet."""
    return TopicHandle(server, next(names))


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Boot]:
    """`boot(TOPICS_MAX_TOPICS="2")`: a server of the test's own; it ends with the test."""
    servers: list[Server] = []

    def start(directory: str = "data", **environment: str) -> Server:
        server = Server(tmp_path / directory, environment)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def streams() -> Iterator[Streams]:
    """Event streams and sockets on any server; they are closed with the test."""
    opened = Streams()
    yield opened
    opened.close()

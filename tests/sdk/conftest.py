"""One server for all tests of the SDK that do not stop it, and each test on both surfaces."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.both import connect
from topics import Topics
from topics.testing import TopicsServer, topics_server  # noqa: F401, as the plugin gives it

Scenario = Callable[[Any], Coroutine[Any, Any, Any]]
Play = Callable[[Scenario], Any]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicsServer]:
    """Tests keep to topics of their own."""
    server = TopicsServer(tmp_path_factory.mktemp("sdk"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def name() -> str:
    """Of a topic that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(params=["blocking", "asyncio"])
def surface(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(shared: TopicsServer, surface: str) -> Play:
    """`play(scenario)`: run a coroutine function with a client of the shared server."""

    def run(scenario: Scenario) -> Any:
        async def whole() -> Any:
            async with connect(surface, shared.url) as client:
                return await scenario(client)

        return asyncio.run(whole())

    return run


@pytest.fixture
def client(shared: TopicsServer) -> Iterator[Topics]:
    """A blocking client, to prepare things with."""
    with Topics(shared.url) as client:
        yield client


@pytest.fixture
def lose(shared: TopicsServer) -> Callable[[str, int], None]:
    return shared.lose


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path

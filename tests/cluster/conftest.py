"""One cluster and one driver on it for all tests; servers whose files its workers see, or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.driver_process import Driver
from tests.cluster.spark_cluster import SparkCluster
from tests.spark.conftest import start_server, topic
from tests.spark.server import Server

__all__ = ["start_server", "topic"]

# To the server this is its own directory; to any other process it is another one: as on two machines.
OUT_OF_SIGHT = "/proc/self/cwd/data"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def driver(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(cluster, tmp_path_factory.mktemp("driver") / "log")
    yield driver
    driver.close()


def _prepared(server: Server) -> Server:
    """With a topic in sealed files."""
    server.fill("sealed", 60_000)
    server.stop()
    server.start()
    return server


@pytest.fixture(scope="session")
def in_sight(start_server: Callable[..., Server]) -> Server:
    return _prepared(start_server(TOPICS_SEGMENT_MAX_EVENTS="20000"))


@pytest.fixture(scope="session")
def out_of_sight(start_server: Callable[..., Server]) -> Server:
    return _prepared(start_server(TOPICS_SEGMENT_MAX_EVENTS="20000", TOPICS_DATA_DIR=OUT_OF_SIGHT))


@pytest.fixture(params=["in_sight", "out_of_sight"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each test runs twice: workers share the data directory, and they have no access to it."""
    server: Server = request.getfixturevalue(request.param)
    return server

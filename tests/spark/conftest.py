"""One Spark session for all tests of this folder, and real servers as processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pyspark_topics.session import spark_session
from tests.spark.server import Server
from tests.spark.streams import Stream
from tests.support import low_descriptors


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Two cores, and a task is tried three times, as on a cluster.
    session = spark_session("tests", "local[2, 3]")
    with low_descriptors():
        ensure_callback_server_started(session.sparkContext._gateway)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(**environment: str) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), environment)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()
        server.http.close()


@pytest.fixture(scope="session")
def server(start_server: Callable[..., Server]) -> Server:
    """Shared: every test uses topics of its own."""
    return start_server()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)[:200]


@pytest.fixture
def read(spark: SparkSession, server: Server) -> Callable[..., DataFrame]:
    def load(subscribe: str, **options: object) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        frame = spark.read.format("topics").option("url", server.url).option("subscribe", subscribe)
        return frame.options(**texts).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, server: Server, tmp_path: Path) -> Iterator[Stream]:
    """A streaming query with a checkpoint of its own; it ends with the test."""
    stream = Stream(spark, server.url, tmp_path)
    yield stream
    if stream.query is not None:
        stream.query.stop()

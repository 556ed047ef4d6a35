"""One cluster and one driver on it for all tests; servers whose files its workers see, or do not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.driver import ANSWER
from tests.cluster.spark_cluster import SparkCluster
from tests.spark.conftest import start_server, topic
from tests.spark.server import Server

__all__ = ["start_server", "topic"]

ROOT = Path(__file__).resolve().parents[2]
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


class Driver:
    def __init__(self, cluster: SparkCluster, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.driver", cluster.master],
                cwd=ROOT,
                env=cluster.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def begin(self, job: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER.encode()):
                answer = json.loads(line.removeprefix(ANSWER.encode()))
                assert "error" not in answer, answer["error"]
                return answer["result"]
        raise AssertionError(self._log.read_text()[-4000:])

    def run(self, job: str, **arguments: Any) -> Any:
        self.begin(job, **arguments)
        return self.finish()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.stdout.close()
            self._process.wait()


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

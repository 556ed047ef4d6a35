"""One Spark session for all tests of this folder, and real servers as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pyspark_topics.session import spark_session
from tests.support import low_descriptors

START_S = 30
Row = dict[str, Any]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Two cores, and a task is tried three times, as on a cluster.
    session = spark_session("tests", "local[2, 3]")
    with low_descriptors():
        ensure_callback_server_started(session.sparkContext._gateway)
    yield session
    session.stop()


class Server:
    """`topics serve` on a port of its own. `stop` and `start` keep the data, `kill` is `kill -9`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.data_dir = folder / "data"
        self.data_dir.mkdir()
        self._port_file = folder / "port"
        self._log = folder / "log"
        self._folder = folder
        self._environment = {**os.environ, "TOPICS_DATA_DIR": str(self.data_dir), **environment}
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client(timeout=30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """A restart takes the same port again, as it would in real life."""
        self._port_file.unlink(missing_ok=True)
        environment = {
            **self._environment,
            "TOPICS_PORT": self._port,
            "TOPICS_PORT_FILE": str(self._port_file),
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli.main", "serve"],
                env=environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        if not self._port_file.exists():
            return False
        self._port = self._port_file.read_text().strip().rpartition(":")[2]
        try:
            return self.http.get(self.url + "/v0/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    # --- what tests do with it --------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, self.url + path, json=body)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def configure(self, topic: str, **config: Any) -> None:
        self.ask("PUT", f"/v0/topics/{topic}", config)

    def append(self, topic: str, *records: Any, **extra: Any) -> list[int]:
        """Values become records with that `data`; dicts with a `data` key are records already."""
        full = [r if isinstance(r, dict) and "data" in r else {"data": r} for r in records]
        seqs: list[int] = self.ask("POST", f"/v0/topics/{topic}", {"records": full, **extra})["seqs"]
        return seqs

    def fill(self, topic: str, count: int, start: int = 0) -> None:
        for first in range(start, start + count, 10_000):
            self.append(topic, *range(first, min(first + 10_000, start + count)))

    def delete(self, topic: str, **selector: Any) -> None:
        self.ask("POST", f"/v0/topics/{topic}/delete", selector)

    def drop(self, topic: str) -> None:
        self.ask("DELETE", f"/v0/topics/{topic}")

    def state(self, topic: str) -> Any:
        return self.ask("GET", f"/v0/topics/{topic}")

    def diff(self, topic: str, from_seq: int = 0) -> tuple[list[Row], list[Row]]:
        """All records behind a cursor, and the gaps met on the way."""
        records: list[Row] = []
        gaps: list[Row] = []
        while True:
            body = {"from_seq": from_seq, "limit": 1000, "include_tags": True}
            page = self.ask("POST", f"/v0/topics/{topic}/diff", body)
            records += page["records"]
            gaps += [page["tombstone"]] if page["tombstone"] else []
            if page["caught_up"]:
                return records, gaps
            from_seq = page["next_from_seq"]


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

"""A real server process for tests, and a small client that speaks JSON to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Py4J listens for callbacks with `select`, which knows no descriptor above 1,023; by the time Spark starts,
# in-process engines of other tests may hold more than that. So a few low ones are set aside.
_LOW_DESCRIPTORS = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]


@contextmanager
def low_descriptors() -> Iterator[None]:
    """What is opened inside gets low numbers."""
    for descriptor in _LOW_DESCRIPTORS:
        os.close(descriptor)
    _LOW_DESCRIPTORS.clear()
    yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServerProcess:
    """`topics serve` on a port of its own choosing; restart it, or kill it, as often as you like."""

    command: tuple[str, ...] = (sys.executable, "-m", "topics.cli.main", "serve")

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> ServerProcess:
        port_file = self.directory / "port"
        port_file.unlink(missing_ok=True)
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")},
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(self.directory / "data"),
            **self.environment,
        }
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=environment, stderr=log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.directory / "server.log").read_text()
            if port_file.exists():
                self.address = port_file.read_text().strip()
                if self.request("GET", "/v0/ready").status == 200:
                    return self
            time.sleep(0.02)
        raise AssertionError("the server did not become ready")

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=40)
        try:
            data = None if body is None else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path).json

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body).json

    def put(self, path: str, body: Any) -> Any:
        return self.request("PUT", path, body).json

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(20)
        self.process = None

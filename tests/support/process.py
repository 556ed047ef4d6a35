"""A real server process for tests, and a small client that speaks JSON to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually


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
            self.process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli.main", "serve"], env=environment, stderr=log
            )
        eventually(self._is_ready, 30, "the server did not become ready", every_s=0.02)
        return self

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "server.log").read_text()
        port_file = self.directory / "port"
        if not port_file.exists():
            return False
        self.address = port_file.read_text().strip()
        return self.request("GET", "/v0/ready").status == 200

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

"""Processes: a real server that speaks JSON, and descriptors that Spark needs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import eventually
from tests.support.wire import Answer
from topics import codec, compiled


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# Py4J listens for callbacks with `select`, which accepts no descriptor above 1,023. When Spark starts,
# in-process engines of other tests may have more open files. So a few low descriptors are reserved.
_LOW_DESCRIPTORS = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]


@contextmanager
def low_descriptors() -> Iterator[None]:
    """Files that are opened inside get low descriptors."""
    for descriptor in _LOW_DESCRIPTORS:
        os.close(descriptor)
    _LOW_DESCRIPTORS.clear()
    yield


class ServerProcess:
    """`topics serve` on a free port. It may be restarted and killed as often as a test needs."""

    patience_s = 30.0
    command: tuple[str, ...] = (sys.executable, "-m", "topics.cli.main", "serve")

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.port_file = directory / "port"
        self.log_file = directory / "server.log"
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        # Where it listens, or where it listened last.
        self.address = ""

    # Its life

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for anything."""
        self.port_file.unlink(missing_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            # What is chosen for the tests is chosen for their servers, too.
            if not name.startswith("TOPICS_") or name in (codec.SWITCH, compiled.SWITCH)
        }
        ours = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self.port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            # Requests in tests name any host.
            "TOPICS_ALLOWED_HOSTS": "*",
        }
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                env=inherited | ours | self.environment,
                stdout=log,
                stderr=log,
            )
        return self.process

    def start(self, **environment: str) -> Self:
        """Launch the server with these settings, which later starts keep, and wait until it is ready."""
        self.environment |= environment
        self.launch()
        eventually(self.is_ready, self.patience_s, self.log)
        return self

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        if not self.port_file.exists():
            return False
        self.address = self.port_file.read_text().strip()
        return self.probe().status == 200

    def probe(self) -> Answer:
        return self.request("GET", "/v0/ready")

    def stop(self) -> None:
        """Stop the server cleanly."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process."""
        self.end(signal.SIGKILL)

    def end(self, number: int) -> int:
        """Send a signal unless the process has ended, and return its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.signal(number)
        code = self.exit_code()
        self.process = None
        return code

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until the process ends, and return its exit code."""
        assert self.process is not None
        return self.process.wait(self.patience_s)

    # Looking at it

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    # Talking to it

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request on a new connection: bytes as they are, any other body as JSON."""
        connection = http.client.HTTPConnection(*self.host_and_port, timeout=40)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**sent, **(headers or {})})
            return Answer.read(connection)
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path).json

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body).json

    def put(self, path: str, body: Any) -> Any:
        return self.request("PUT", path, body).json

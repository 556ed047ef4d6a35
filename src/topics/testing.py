"""A real server for your tests, with losses on demand. pytest finds the fixture by itself.

def test_my_consumer(topics_server):
    orders = Topics(topics_server.url).topic("orders")
    ...
    topics_server.lose("orders", 3)
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.client.sync import Topics

READY_S = 30.0
STOP_S = 30.0
_POLL_S = 0.02


class TopicsServer:
    """A server of this test's own: a process, with its data in the test's folder."""

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("httptools") is None or importlib.util.find_spec("uvloop") is None:
            raise ImportError("a server needs more than the client: pip install 'topics-log[server]'")
        self._folder = folder
        self._port_file = folder / "address"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Again on the same port after a stop, so that clients find it."""
        address = self.url.removeprefix("http://") or "127.0.0.1:0"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        self._port_file.unlink(missing_ok=True)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics", "serve"],
                env={
                    **kept,
                    "TOPICS_HOST": address,
                    "TOPICS_PORT_FILE": str(self._port_file),
                    "TOPICS_DATA_DIR": str(self._folder / "data"),
                },
                stdout=log,
                stderr=log,
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._port_file.exists():
                self.url = "http://" + self._port_file.read_text().strip()
                with Topics(self.url, retry_s=READY_S) as client:
                    client.metrics()
                return
            time.sleep(_POLL_S)
        self.stop(kill=True)
        raise RuntimeError(f"the server did not start:\n{(self._folder / 'server.log').read_text()}")

    def stop(self, *, kill: bool = False) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self._process.wait(STOP_S)
            self._process = None

    def restart(self, kill: bool = False) -> None:
        """Stop it and start it again; with `kill`, as a crash would."""
        self.stop(kill=kill)
        self.start()

    def lose(self, topic: str, records: int) -> None:
        """The server drops its oldest records of a topic, as a cap does; the topic's settings stay."""
        with Topics(self.url) as client:
            of = client.topic(topic)
            state = of.describe()
            if not 0 < records <= state.count:
                raise ValueError(f"{topic} has {state.count} records: {records} of them cannot be lost")
            left = state.count - records
            # There is no cap of no records: the last one goes by its bytes; if it has but one, by its age.
            of.configure(discard="old", **({"cap_records": left} if left else {"cap_bytes": 1}))
            while of.describe().count > left:
                of.configure(ttl_ms=1)
                time.sleep(_POLL_S)
            kept = ("cap_records", "cap_bytes", "discard", "ttl_ms")
            of.configure(**{name: state.config[name] for name in kept})


@pytest.fixture
def topics_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicsServer]:
    server = TopicsServer(tmp_path_factory.mktemp("topics"))
    server.start()
    try:
        yield server
    finally:
        server.stop()

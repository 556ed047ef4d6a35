"""A real server for your tests, with losses on demand. pytest finds the fixture `topics_server` by itself.

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
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topics.client.topic import Topic

READY_S = 60.0
STOP_S = 60.0
_POLL_S = 0.02
# What a server imports and a client does not.
_NEEDED = ("numpy", "uvloop")
# How a loss is brought about, and what is put back afterwards.
_CAPS = ("cap_records", "cap_bytes", "discard", "ttl_ms")


class TopicsServer:
    """A process of its own, with its data in `folder`. `url` stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        if any(importlib.util.find_spec(name) is None for name in _NEEDED):
            raise ImportError("a server needs more than the client: pip install 'topics-log[server]'")
        self._folder = folder
        self._port_file = folder / "address"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, str] = {}
        self.url = ""

    def start(self, **settings: str) -> None:
        """On the same port as before, so that clients find it. Settings are environment variables."""
        self._settings = {**self._settings, **settings}
        own = {
            "TOPICS_HOST": self.url.removeprefix("http://") or "127.0.0.1:0",
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self._folder / "data"),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        self._port_file.unlink(missing_ok=True)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics", "serve"],
                env={**kept, **self._settings, **own},
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop(kill=True)
            raise

    def _wait_until_ready(self) -> None:
        from topics.client.sync import Topics

        deadline = time.monotonic() + READY_S
        assert self._process is not None
        while not self._port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "server.log").read_text()
                raise RuntimeError(f"the server did not start:\n{log}")
            time.sleep(_POLL_S)
        self.url = "http://" + self._port_file.read_text().strip()
        with Topics(self.url, retry_s=READY_S) as client:
            client.wait_until_ready()

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
        from topics.client.sync import Topics

        with Topics(self.url) as client:
            losing = client.topic(topic)
            state = losing.describe()
            if not 0 < records <= state.count:
                raise ValueError(f"{topic} has {state.count} records: {records} of them cannot be lost")
            _drop_oldest(losing, state.count - records)
            losing.configure(**{name: state.config[name] for name in _CAPS})


def _drop_oldest(topic: "Topic[object]", left: int) -> None:
    if left:
        topic.configure(discard="old", cap_records=left, cap_bytes=0, ttl_ms=0)
        return
    # There is no cap of no records: the last one goes by its bytes; if it has but one, by its age.
    topic.configure(discard="old", cap_bytes=1)
    while topic.describe().count:
        topic.configure(ttl_ms=1)
        time.sleep(_POLL_S)


@pytest.fixture
def topics_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicsServer]:
    """A server of this test's own: `url`, `lose(topic, records)`, `restart(kill=False)`."""
    server = TopicsServer(tmp_path_factory.mktemp("topics"))
    server.start()
    try:
        yield server
    finally:
        server.stop()

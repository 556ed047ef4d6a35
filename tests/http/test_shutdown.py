"""A clean stop with everything open, and one that comes before the server was ready."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.http.streaming import EventReader, SocketClient
from tests.support import ServerProcess, Wire, eventually, raw_request
from topics.core.settings import Settings
from topics.engine.node import Node
from topics.log.recover.replay import JournalReplay


@pytest.fixture
def server(tmp_path: Path):
    server = ServerProcess(tmp_path).start()
    yield server
    if server.process is not None:
        server.kill()


def test_everything_that_is_open_ends_properly_and_in_time(server: ServerProcess) -> None:
    address = server.host_and_port
    server.put("/v0/topics/jobs", {"type": "queue", "lease_ms": 600000})
    server.post("/v0/topics/jobs", {"records": [{"data": n} for n in range(6)]})
    claimed = server.post("/v0/topics/jobs/claim", {"node": "w", "max": 2})
    wid = server.post("/v0/watch", {"topics": {"jobs": {"tail": True}}})["wid"]
    watching = EventReader(address, f"/v0/watch/{wid}")
    working = EventReader(address, "/v0/topics/jobs/work?node=v&max=2")
    talking = SocketClient(address)
    talking.send_text('{"op":"ping","request_id":1}')
    assert talking.read()["op"] == "pong"
    waiting = Wire(address)
    waiting.send(raw_request("POST", "/v0/topics/jobs/diff", b'{"from_seq":6,"wait_ms":30000}'))
    finished, stuck = Wire(address), Wire(address)
    upload = raw_request("POST", "/v0/topics/jobs", b'{"records":[{"data":"late"}]}')
    for wire in (finished, stuck):
        wire.send(upload[:-10])
    eventually(lambda: _open_connections(server) == 7, 5)

    process = server.process
    assert process is not None
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    blocks = iter(watching.block, None)
    assert any("server_shutting_down" in block for block in blocks)
    assert any("server_shutting_down" in block for block in iter(working.block, None))
    assert talking.read()["code"] == "server_shutting_down"
    assert waiting.read().json["records"] == []
    # It was let in before the stop, so it is served; the one that never completes is cut off.
    finished.send(upload[-10:])
    assert finished.read().json["first_seq"] == 7
    assert process.wait(20) == 0
    assert time.monotonic() - began < 13
    server.process = None
    for client in (watching, working, talking, waiting, finished, stuck):
        client.close()

    server.start()
    state = server.get("/v0/topics/jobs")
    assert state["head_seq"] == 7
    assert state["queue"] == {"ready": 7, "in_flight": 0, "dead_lettered": 0}
    assert len(claimed["claimed"]) == 2
    server.stop()


def _open_connections(server: ServerProcess) -> int:
    """The one that asks included."""
    text = server.request("GET", "/v0/metrics").text
    return int(text.partition("\ntopics_http_connections ")[2].partition("\n")[0])


def test_a_clean_stop_leaves_nothing_to_replay(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.post("/v0/topics/t", {"records": [{"data": n} for n in range(5000)]})
    server.stop()
    node = Node(Settings(data_dir=str(tmp_path / "data")))
    replayed: list[object] = []
    monkeypatch.setattr(JournalReplay, "take", lambda _, frame: replayed.append(frame))
    node.recover()
    assert node.engine.require("t").head == 5000
    assert replayed == []
    node.leave(clean=True)

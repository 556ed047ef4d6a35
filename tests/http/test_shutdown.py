"""A clean stop with everything open, and one that comes before the server was ready."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
import uvloop

from tests.http.streaming import EventReader, SocketClient
from tests.support import ServerProcess, Wire, eventually, raw_request
from topics.core.settings import Settings
from topics.engine.node import Node, State
from topics.http.app import Application
from topics.log.recover.recovery import Recovery
from topics.log.recover.replay import JournalReplay
from topics.storage.filesystem import Filesystem


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


def test_progress_is_shown_while_recovering_and_a_stop_does_not_wait_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    # A directory in which nothing was ever written is recovered before anybody can connect.
    before = Node(Settings(data_dir=str(tmp_path)))
    before.recover()
    before.leave(clean=True)
    reached, go_on = threading.Event(), threading.Event()

    def slow(recovery: Recovery) -> None:
        recovery._progress(0.25)
        reached.set()
        assert go_on.wait(20)
        recovery._progress(0.5)
        raise AssertionError("it should have stopped here")

    monkeypatch.setattr(Recovery, "run", slow)
    app = Application(Settings(data_dir=str(tmp_path), port=0), Filesystem())
    monkeypatch.setattr(app.server, "serve_until_signal", _until_asked(app))
    thread = threading.Thread(target=lambda: uvloop.run(app.run()))
    thread.start()
    try:
        assert reached.wait(20)
        wire = Wire(app.server.address)
        answer = wire.request("GET", "/v0/ready")
        assert (answer.status, answer.code) == (503, "not_ready")
        assert answer.json["error"]["detail"] == {"replay_progress": 0.25}
        assert wire.request("GET", "/v0/health").status == 200
        refused = wire.request("GET", "/v0/topics")
        assert (refused.status, refused.code) == (503, "not_ready")
        assert wire.request("GET", "/v0/openapi.json").status == 200
        app.server.context.loop.call_soon_threadsafe(app.server.request_stop)
        eventually(lambda: app.readiness.draining)
    finally:
        go_on.set()
        thread.join(20)
    assert not thread.is_alive()
    wire.close()
    assert app.node.state is State.OPENED
    app.node.home.release()


def _until_asked(app: Application):
    async def serve() -> None:
        await app.server._stopping.wait()
        await app.server.stop()

    return serve

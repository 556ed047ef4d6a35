import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support import eventually
from topics.core.errors import ConfigError
from topics.http.routing import Route
from topics.http.server import bind, write_port_file


def ok(exchange):
    exchange.reply(b"{}")


OK = Route(method="GET", template="/", handler=ok)


def test_the_port_file_tells_where(serve, tmp_path):
    path = tmp_path / "port"
    running = serve([OK], port_file=str(path))
    host, _, port = path.read_text().rpartition(":")
    assert (host, int(port)) == running.address
    assert os.listdir(tmp_path) == ["port"]


def test_whoever_reads_the_port_file_can_connect(serve, monkeypatch):
    def read_at_once(path, address):
        socket.create_connection(address, timeout=5).close()

    monkeypatch.setattr("topics.http.server.write_port_file", read_at_once)
    serve([OK], port_file="unused")


def test_an_unwritable_port_file_is_fatal(serve, tmp_path):
    with pytest.raises(ConfigError):
        serve([OK], port_file=str(tmp_path / "no" / "such" / "folder"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError):
        write_port_file(str(tmp_path / "folder"), ("127.0.0.1", 1))
    assert os.listdir(tmp_path) == ["folder"]


def test_ipv6_addresses_are_bracketed(tmp_path):
    write_port_file(str(tmp_path / "port"), ("::1", 80))
    assert (tmp_path / "port").read_text() == "[::1]:80"


def test_a_port_in_use_is_a_plain_error(serve):
    running = serve([OK])
    with pytest.raises(ConfigError, match="cannot listen"):
        bind(*running.address)
    with pytest.raises(ConfigError, match="resolve"):
        bind("no-such-host.invalid", 0)


def test_all_addresses_share_one_port():
    sockets = bind("localhost", 0)
    assert len({listener.getsockname()[1] for listener in sockets}) == 1
    for listener in sockets:
        listener.close()


def test_exposed_without_keys_is_refused_before_binding(serve):
    with pytest.raises(ConfigError, match="without API keys"):
        serve([OK], host="0.0.0.0")


def test_draining(serve, raw, wait_until):
    parked, told = [], []
    running = serve([OK, Route(method="GET", template="/park", handler=parked.append)])
    running.server.on_shutdown.append(lambda: told.append("shutdown"))

    async def checkpoint():
        told.append("stopped")

    running.server.on_stopped.append(checkpoint)
    waiting, idle = running.connect(), running.connect()
    assert idle.request("GET", "/").status == 200
    waiting.send(raw("GET", "/park"))
    wait_until(lambda: bool(parked))
    running.begin_stop()
    wait_until(lambda: told == ["shutdown"])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(running.address)
    answer = idle.request("GET", "/")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "shutting_down", "1")
    assert idle.at_end()
    running.loop.call_soon_threadsafe(parked[0].reply, b"done")
    assert waiting.read().body == b"done"
    assert waiting.at_end()
    running.thread.join(10)
    assert told == ["shutdown", "stopped"]


def test_draining_does_not_wait_for_ever(serve, raw, wait_until):
    parked = []
    running = serve([Route(method="GET", template="/park", handler=parked.append)], keys="k")
    wire = running.connect()
    wire.send(raw("GET", "/park", headers={"Authorization": "Bearer k"}))
    wait_until(lambda: bool(parked))
    began = time.monotonic()
    running.begin_stop()
    running.thread.join(10)
    assert 1.5 < time.monotonic() - began < 8
    assert running.inflight() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_a_process_cleanly(tmp_path, number):
    script = textwrap.dedent(
        """
        import asyncio, sys, uvloop
        from topics.http.admission.auth import KeyRing
        from topics.http.admission.readiness import Readiness
        from topics.http.server import Server
        from topics.core.settings import Settings

        async def main():
            server = Server(Settings(port=0, port_file=sys.argv[1]), KeyRing.parse(""), [], Readiness())
            server.on_stopped.append(lambda: print("stopped"))
            # The file appears in `start`, and the signal follows at once: whoever handles it comes first.
            serving = asyncio.create_task(server.serve_until_signal())
            await asyncio.sleep(0)
            await server.start()
            await serving

        uvloop.run(main())
        """
    )
    path = tmp_path / "port"
    source = str(Path(__file__).resolve().parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    )
    eventually(path.exists, 20)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, b"stopped\n")

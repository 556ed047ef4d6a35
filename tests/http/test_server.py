import socket
import time

import pytest

from topics.http.routing import Route
from topics.http.server import bind, write_port_file


def ok(exchange):
    exchange.reply(b"{}")


OK = Route(method="GET", template="/", handler=ok)


def test_whoever_reads_the_port_file_can_connect(serve, monkeypatch):
    def read_at_once(path, address):
        socket.create_connection(address, timeout=5).close()

    monkeypatch.setattr("topics.http.server.write_port_file", read_at_once)
    serve([OK], port_file="unused")


def test_ipv6_addresses_are_bracketed(tmp_path):
    write_port_file(str(tmp_path / "port"), ("::1", 80))
    assert (tmp_path / "port").read_text() == "[::1]:80"


def test_all_addresses_share_one_port():
    sockets = bind("localhost", 0)
    assert len({listener.getsockname()[1] for listener in sockets}) == 1
    for listener in sockets:
        listener.close()


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

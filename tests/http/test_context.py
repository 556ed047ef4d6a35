import asyncio
import time
from functools import partial

import pytest

from topics.http.context import Limits
from topics.http.routing import Body, Route
from topics.http.stream import CLOSE_CALLBACKS_S, CloseCallbacks

PATIENT = {"head_s": 60, "body_idle_s": 60, "keep_alive_s": 60, "write_stall_s": 60, "linger_s": 60}


def start(serve, parked=None, **impatient):
    routes = [
        Route(
            method="POST", template="/", handler=lambda exchange: exchange.reply(b"{}"), body=Body.REQUIRED
        ),
        Route(method="GET", template="/big", handler=lambda exchange: exchange.reply(bytes(64 << 20))),
        Route(method="GET", template="/park", handler=(parked if parked is not None else []).append),
    ]
    return serve(routes, limits=Limits(**{**PATIENT, "sweep_s": 0.02, **impatient}), max_body_bytes=1000)


def test_an_idle_connection_is_closed(serve):
    wire = start(serve, keep_alive_s=0.2).connect()
    assert wire.request("POST", "/", b"{}").status == 200
    began = time.monotonic()
    assert wire.at_end()
    assert time.monotonic() - began > 0.15


def test_a_body_may_take_long_while_it_moves(serve, raw):
    wire = start(serve, body_idle_s=0.3, body_step_bytes=1).connect()
    data = raw("POST", "/", b"x" * 20)
    wire.send(data[:-20])
    for byte in data[-20:]:
        time.sleep(0.05)
        wire.send(bytes([byte]))
    assert wire.read().status == 200
    wire.send(data[:-10])
    assert wire.at_end()


def test_a_body_that_only_trickles_is_cut_off(serve, raw):
    wire = start(serve, body_idle_s=0.2).connect()
    wire.send(raw("POST", "/", b"x" * 500)[:-500])
    with pytest.raises(OSError):  # noqa: PT012
        for _ in range(500):
            wire.send(b"x")
            time.sleep(0.02)


def test_a_parked_request_is_left_alone(serve, raw, wait_until):
    parked = []
    running = start(serve, parked, head_s=0.1, body_idle_s=0.1, keep_alive_s=0.1)
    wire = running.connect()
    wire.send(raw("GET", "/park"))
    wait_until(lambda: bool(parked))
    time.sleep(0.4)
    running.loop.call_soon_threadsafe(parked[0].reply, b"{}")
    assert wire.read().status == 200


def test_a_client_that_does_not_read_its_answer_is_cut_off(serve, raw, wait_until):
    running = start(serve, write_stall_s=0.2)
    wire = running.connect()
    wire.send(raw("GET", "/big"))
    wait_until(lambda: bool(running.server.context.connections))
    wait_until(lambda: not running.server.context.connections)
    wire.close()


def test_a_client_that_reads_its_answer_drop_by_drop_is_cut_off(serve, raw, wait_until):
    running = start(serve, write_stall_s=0.3)
    wire = running.connect()
    wire.send(raw("GET", "/big"))
    wait_until(lambda: bool(running.server.context.connections))

    def is_gone() -> bool:
        wire.socket.recv(64)
        return not running.server.context.connections

    wait_until(is_gone)


def test_lingering_ends(serve, wait_until):
    running = start(serve, linger_s=0.2)
    wire = running.connect()
    wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
    assert wire.read().status == 413
    wait_until(lambda: not running.server.context.connections)


def test_close_callbacks_take_turns_with_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = [0.0], []
    monkeypatch.setattr("topics.http.stream.perf_counter", lambda: clock[0])

    def take_time(number: int) -> None:
        clock[0] += CLOSE_CALLBACKS_S / 2
        done.append(number)
        if number == 2:
            raise RuntimeError("is logged, and the others run all the same")

    async def scenario() -> None:
        callbacks = CloseCallbacks(asyncio.get_running_loop())
        for number in range(5):
            callbacks.run([partial(take_time, number)])
        assert done == [0, 1]
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3]
        callbacks.run([partial(take_time, 5), partial(take_time, 6)])
        # Those that wait come first.
        assert done == [0, 1, 2, 3]
        callbacks.finish()
        assert done == [0, 1, 2, 3, 4, 5, 6]
        await asyncio.sleep(0)
        callbacks.run([partial(take_time, 7)])
        assert done[-1] == 7

    asyncio.run(scenario())

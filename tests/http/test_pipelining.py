"""Requests sent ahead: answered in order, held back in bounds."""

import asyncio
import socket
import threading
from itertools import groupby

import pytest

from topics.http import connection as connection_module
from topics.http.context import Limits
from topics.http.routing import Body, Route


@pytest.fixture
def parked():
    return []


@pytest.fixture
def routes(parked):
    def echo(exchange):
        exchange.reply(exchange.name.encode() + exchange.body)

    return [
        Route(method="GET", template="/now/:n", handler=echo),
        Route(method="POST", template="/now/:n", handler=echo, body=Body.REQUIRED, takes_large=True),
        Route(method="GET", template="/later/:n", handler=parked.append),
        Route(method="GET", template="/big/:n", handler=lambda exchange: exchange.reply(bytes(1 << 20))),
    ]


def answer(running, exchange):
    running.loop.call_soon_threadsafe(exchange.reply, exchange.name.encode())


def test_answers_come_in_order_and_each_request_waits_for_the_one_before(
    serve, routes, parked, raw, wait_until
):
    running = serve(routes)
    wire = running.connect()
    targets = ["/now/1", "/later/2", "/now/3", "/later/4", "/nowhere", "/now/6"]
    wire.send(b"".join(raw("GET", target) for target in targets))
    assert wire.read().body == b"1"
    wait_until(lambda: len(parked) == 1)
    answer(running, parked[0])
    assert [wire.read().body for _ in range(2)] == [b"2", b"3"]
    wait_until(lambda: len(parked) == 2)
    answer(running, parked[1])
    assert wire.read().body == b"4"
    assert wire.read().status == 404
    assert wire.read().body == b"6"


def test_what_is_sent_ahead_is_looked_at_turn_by_turn(serve, raw, monkeypatch):
    """However much one client asks in one breath: others are served in between, and order is kept."""
    monkeypatch.setattr(connection_module, "TURN_S", 0.0)
    told = []

    def note(exchange):
        told.append("request")
        asyncio.get_running_loop().call_soon(told.append, "others")
        exchange.reply(exchange.name.encode())

    wire = serve([Route(method="GET", template="/now/:n", handler=note)]).connect()
    wire.send(b"".join(raw("GET", f"/now/{n}") for n in range(200)))
    assert [wire.read().body for _ in range(200)] == [b"%d" % n for n in range(200)]
    # One at a time; where a piece begins, one as it comes and one of what is left over.
    assert told.count("request") == 200
    assert max(len(list(turn)) for what, turn in groupby(told) if what == "request") <= 3


def test_an_end_in_the_middle_of_what_was_sent_ahead(serve, routes, raw, monkeypatch, wait_until):
    monkeypatch.setattr(connection_module, "TURN_S", 0.0)
    running = serve(routes)
    ended, gone = running.connect(), running.connect()
    ended.send(b"".join(raw("GET", f"/now/{n}") for n in range(200)))
    ended.socket.shutdown(socket.SHUT_WR)
    assert [ended.read().body for _ in range(200)] == [b"%d" % n for n in range(200)]
    gone.send(b"".join(raw("GET", f"/now/{n}") for n in range(200)))
    gone.close()
    wait_until(lambda: not running.server.context.connections)


def test_what_waits_is_bounded(serve, routes, parked, raw, wait_until):
    running = serve(routes, limits=Limits(waiting_requests=8))
    wire = running.connect()
    count = 20_000
    wire.send(raw("GET", "/later/0"))
    wait_until(lambda: len(parked) == 1)
    data = b"".join(raw("GET", f"/now/{n}") for n in range(count))
    sender = threading.Thread(target=wire.send, args=(data,))
    sender.start()
    (connection,) = running.server.context.connections
    wait_until(lambda: connection._read_control.is_paused)
    # One piece of input may hold a few hundred; nothing near all of them.
    assert 8 <= len(connection.replies) - 1 < 500
    answer(running, parked[0])
    assert wire.read().body == b"0"
    for n in range(count):
        assert wire.read().body == b"%d" % n
    sender.join()
    assert not connection._read_control.is_paused
    assert not connection.has_waiting


def test_a_large_body_behind_a_parked_request_waits_outside(serve, routes, parked, raw, wait_until):
    running = serve(routes)
    wire = running.connect()
    body = b"y" * (8 << 20)
    wire.send(raw("GET", "/later/0"))
    sender = threading.Thread(target=wire.send, args=(raw("POST", "/now/1", body),))
    sender.start()
    wait_until(lambda: len(parked) == 1)
    (connection,) = running.server.context.connections
    wait_until(lambda: connection._read_control.is_paused)
    assert sum(exchange.received for exchange in connection.replies) < 2 << 20
    answer(running, parked[0])
    assert wire.read().body == b"0"
    assert wire.read().body == b"1" + body
    sender.join()


def test_a_client_that_asks_and_never_reads_does_not_fill_memory(serve, routes, raw, wait_until):
    running = serve(routes)
    wire = running.connect()
    wire.send(b"".join(raw("GET", f"/big/{n}") for n in range(200)))
    wait_until(lambda: len(running.server.context.connections) == 1)
    (connection,) = running.server.context.connections
    wait_until(lambda: connection._write_paused)
    assert connection._transport.get_write_buffer_size() < 2 << 20
    for _ in range(200):
        assert len(wire.read().body) == 1 << 20


def test_a_client_that_ended_its_side_still_gets_its_answers(serve, routes, parked, raw, wait_until):
    running = serve(routes)
    wire = running.connect()
    wire.send(raw("GET", "/later/1") + raw("GET", "/now/2"))
    wire.socket.shutdown(1)
    wait_until(lambda: len(parked) == 1)
    answer(running, parked[0])
    assert wire.read().body == b"1"
    last = wire.read()
    assert (last.body, last.headers["connection"]) == (b"2", "close")
    assert wire.at_end()


def test_a_client_that_vanishes_with_requests_waiting(serve, routes, parked, raw, wait_until):
    running = serve(routes, keys="k")
    wire = running.connect()
    wire.send(raw("GET", "/later/1", headers={"Authorization": "Bearer k"}) * 3)
    wait_until(lambda: len(parked) == 1)
    parked[0].on_close(lambda: None)
    wire.close()
    wait_until(lambda: not running.server.context.connections)
    assert running.inflight() == 0
    assert len(parked) == 1

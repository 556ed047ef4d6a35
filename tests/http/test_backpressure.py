"""Clients of every kind that come, stop reading, and go: nothing of them stays."""

from __future__ import annotations

import gc
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from wsproto.events import Message

from tests.http.queue_app import QueueApp
from tests.http.streaming import EventReader, SocketClient
from tests.support import Wire, eventually, raw_request
from topics.flow.watch.delivery import Subscription
from topics.http.connection import Connection
from topics.http.exchange import Exchange
from topics.http.request_parser import RequestParser
from topics.http.stream import BackpressuredStream, OpenStream

# More than two kernels and the server's own buffer take on behalf of a client that does not read.
BLOCK = "x" * 100_000
BLOCKS = 80


@pytest.fixture
def app(start: Callable[..., QueueApp]) -> QueueApp:
    app = start(QueueApp)
    app.put("q")
    app.write("t", 1)
    app.write("big", *[BLOCK] * BLOCKS)
    return app


def socket_of(client: Any) -> socket.socket:
    found: socket.socket = client.wire.socket if isinstance(client, EventReader) else client.socket
    return found


def reset(client: Any) -> None:
    """Gone without a word: the kernel answers whatever is still sent."""
    socket_of(client).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


def leave(client: Any) -> None:
    client.close()


# --- who comes ------------------------------------------------------------------------------------------


def watcher(app: QueueApp) -> EventReader:
    return app.stream({"t": {}, "big": {"tail": True}})


def subscriber(app: QueueApp) -> SocketClient:
    client = app.socket()
    client.send(op="subscribe", topics={"t": {}, "big": {"tail": True}})
    return client


def worker(app: QueueApp) -> EventReader:
    return app.work("node=w&max=2")


def long_poller(app: QueueApp) -> Wire:
    wire = app.wire()
    wire.send(raw_request("POST", "/v0/topics/t/diff", b'{"from_seq":1,"wait_ms":30000}'))
    return wire


def deaf_watcher(app: QueueApp) -> Wire:
    return app.slow_wire(f"/v0/watch/{app.watch('big')['wid']}")


def deaf_worker(app: QueueApp) -> Wire:
    app.write("q", *[BLOCK] * BLOCKS)
    return app.slow_wire("/v0/topics/q/work?node=deaf&max=1000")


def deaf_subscriber(app: QueueApp) -> SocketClient:
    client = app.slow_socket()
    client.send_event(Message(data='{"op":"subscribe","topic":"big"}'))
    return client


ALL: list[Callable[[QueueApp], Any]] = [
    watcher,
    subscriber,
    worker,
    long_poller,
    deaf_watcher,
    deaf_worker,
    deaf_subscriber,
]


# --- how they go ----------------------------------------------------------------------------------------


def connection_limit(app: QueueApp, each: int) -> list[Any]:
    """So many of each kind; everybody is in, and those who do not read have a task that waits for them."""
    quiet = app.footprint()["tasks"]
    clients = [arrive(app) for arrive in ALL for _ in range(each)]
    eventually(lambda: app.footprint()["slots"] == 6 * each)
    eventually(lambda: app.footprint()["parked"] == each)
    eventually(lambda: app.footprint()["tasks"] >= quiet + 3 * each)
    assert app.counters()[1] > each
    return clients


@pytest.mark.parametrize("farewell", [leave, reset])
def test_connecting_stalling_and_vanishing_leaves_nothing_behind(
    app: QueueApp, farewell: Callable[[Any], None]
) -> None:
    before = app.footprint()
    for _ in range(2):
        for client in connection_limit(app, 3):
            farewell(client)
        eventually(lambda: app.footprint_since(before) == before, 15.0)
        jobs, leased, _ = app.counters()
        assert (jobs, leased) == (app.state()["count"], 0)
        app.call("POST", "/v0/topics/q/delete", {"before_seq": 1 << 50})
    assert before["slots"] == before["listeners"] == before["workers"] == before["connections"] == 0
    # And the server still works.
    assert app.stream("t").next("record").seqs == [1]


def _kept() -> Counter[str]:
    """Objects of connections that are there, whether or not anything refers to them."""
    kinds = (Subscription, BackpressuredStream, OpenStream, Connection, RequestParser, Exchange)
    return Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, kinds))


def test_what_is_closed_needs_no_garbage_collector(app: QueueApp) -> None:
    """It walks through everything, and those who wait for an answer wait for it; see `SettledObjects`."""
    gc.collect()
    before, kept = app.footprint(), _kept()
    gc.disable()
    try:
        clients: list[Any] = [arrive(app) for arrive in (watcher, subscriber, worker, long_poller)]
        eventually(lambda: (app.footprint()["slots"], app.footprint()["parked"]) == (3, 1))
        for client in clients:
            client.close()
        eventually(lambda: app.footprint_since(before) == before)
        eventually(lambda: _kept() == kept)
    finally:
        gc.enable()


def test_a_client_that_ends_its_side_and_does_not_read_is_not_waited_for(app: QueueApp) -> None:
    app.app.server.context.limits.linger_s = 0.1
    before = app.footprint()
    clients = connection_limit(app, 1)
    for client in clients[:-1]:
        socket_of(client).shutdown(socket.SHUT_WR)
    # Of the deaf socket nothing is heard while it is not read: it stalls itself for as long as it likes.
    eventually(lambda: (app.footprint()["slots"], app.footprint()["parked"]) == (1, 0))
    assert app.counters()[1] == 0
    for client in clients:
        client.close()
    eventually(lambda: app.footprint_since(before) == before)


def test_a_worker_that_never_reads_is_cut_off_and_others_get_its_jobs(app: QueueApp) -> None:
    app.app.service.streams.patience_s = 0.2
    deaf = deaf_worker(app)
    eventually(lambda: app.counters()[1] > 0)
    eventually(lambda: app.footprint()["workers"] == app.counters()[1] == 0)
    assert app.counters()[0] == BLOCKS
    reader = EventReader.__new__(EventReader)
    reader.wire, reader._text = deaf, b""
    assert deaf.read_head()[0] == 200
    *jobs, error = reader.rest()
    assert {frame.event for frame in jobs} == {"job"}
    assert (error.event, error.id) == ("error", None)
    assert error.data == {"code": 429, "error": "slow_consumer", "retry_after_ms": 2000, "topics": ["q"]}
    eventually(lambda: app.footprint()["slots"] == 0)
    assert app.work().next("job").data["deliveries"] == 2

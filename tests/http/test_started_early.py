"""Requests that start before earlier ones of their connection are answered."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.running import Running
from tests.http.streaming import RunningApp
from tests.support import Wire, eventually, raw_request
from topics.core import ApiError
from topics.http.context import Limits
from topics.http.exchange import Exchange
from topics.http.routing import Body, Route

Serve = Callable[..., Running]


class Log:
    """Handlers that write down what they are asked, and reply when they are told to."""

    def __init__(self, serve: Serve, **settings: Any) -> None:
        self.started: list[str] = []
        self.open: dict[str, Exchange] = {}
        self.lets_next = True
        self.running = serve(
            [
                Route("POST", "/append/:topic", self._append, body=Body.REQUIRED),
                Route("POST", "/change/:topic", self._append, body=Body.REQUIRED),
                Route("GET", "/read/:topic", self._read),
                Route("GET", "/stream/:topic", self._stream, event_stream=True),
            ],
            **settings,
        )

    def _append(self, exchange: Exchange) -> None:
        name = exchange.body.decode()
        self.started.append(name)
        if name.startswith("bad"):
            raise ApiError("topic_full", name)
        self.open[name] = exchange
        if self.lets_next:
            exchange.let_next_start()

    def _read(self, exchange: Exchange) -> None:
        self.started.append(f"read {exchange.name}")
        exchange.reply(json.dumps(sorted(self.open)).encode())

    def _stream(self, exchange: Exchange) -> None:
        self.started.append("stream")
        stream = exchange.open_stream(b"text/event-stream")
        stream.write(b"x")
        stream.close()

    def inside(self, action: Callable[[], Any]) -> None:
        self.running.loop.call_soon_threadsafe(action)

    def reply(self, *names: str) -> None:
        """All in one turn of the event loop, in this order."""

        def reply() -> None:
            for name in names:
                self.open.pop(name).reply(name.encode())

        self.inside(reply)

    def await_started(self, *names: str) -> None:
        eventually(lambda: self.started == [*names], what=lambda: self.started)

    def send(self, *requests: bytes) -> Wire:
        wire = self.running.connect()
        wire.send(b"".join(requests))
        return wire


@pytest.fixture
def log(serve: Serve) -> Log:
    return Log(serve)


def append(name: str, topic: str = "t", **headers: str) -> bytes:
    return raw_request("POST", f"/append/{topic}", name.encode(), headers)


def read(topic: str = "t") -> bytes:
    return raw_request("GET", f"/read/{topic}")


def test_replies_out_of_order_are_written_in_order(log: Log) -> None:
    wire = log.send(append("1"), append("2"), append("3"))
    log.await_started("1", "2", "3")
    log.reply("3", "2")
    wire.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    wire.socket.settimeout(20)
    log.reply("1")
    assert [wire.read().body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "other", [append("2", "other"), raw_request("POST", "/change/t", b"2")], ids=["topic", "route"]
)
def test_another_topic_or_another_route_waits(log: Log, other: bytes) -> None:
    wire = log.send(append("1"), other, append("3"))
    log.await_started("1")
    log.reply("1")
    assert wire.read().body == b"1"
    # Nor does the third start, which is to the topic of the first.
    log.await_started("1", "2")
    log.reply("2")
    assert wire.read().body == b"2"
    log.await_started("1", "2", "3")
    log.reply("3")
    assert wire.read().body == b"3"


def test_a_refusal_waits_for_its_place_and_holds_up_nothing(log: Log) -> None:
    wire = log.send(append("1"), append("bad"), append("2"), raw_request("GET", "/nowhere"), append("3"))
    log.await_started("1", "bad", "2")
    log.reply("2", "1")
    assert [wire.read().status for _ in range(4)] == [200, 422, 200, 404]
    log.await_started("1", "bad", "2", "3")
    log.reply("3")
    assert wire.read().body == b"3"


def test_an_incomplete_request_and_one_that_expects_an_answer_wait(log: Log) -> None:
    """Nothing is written between two replies, not even that a body may come."""
    whole = append("22", Expect="100-continue")
    wire = log.send(append("1"), whole[:-1])
    log.await_started("1")
    log.reply("1")
    assert wire.read().body == b"1"
    assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert wire.file.readline() == b"\r\n"
    wire.send(whole[-1:] + append("3"))
    log.await_started("1", "22", "3")
    log.reply("3", "22")
    assert [wire.read().body for _ in range(2)] == [b"22", b"3"]


def test_a_client_that_ends_its_side(log: Log) -> None:
    wire = log.send(append("1"), append("2"), append("3"))
    log.await_started("1", "2", "3")
    log.reply("3")
    wire.socket.shutdown(socket.SHUT_WR)
    (connection,) = log.running.server.context.connections
    last: Exchange = connection.replies[-1]  # type: ignore[attr-defined]
    eventually(lambda: last.closes)
    log.reply("2", "1")
    replies = [wire.read() for _ in range(3)]
    assert [reply.body for reply in replies] == [b"1", b"2", b"3"]
    assert [reply.headers.get("connection") for reply in replies] == [None, None, "close"]
    assert wire.at_end()


def test_an_error_that_ends_the_connection_ends_those_behind_it(serve: Serve) -> None:
    log = Log(serve, keys="k")
    wire = log.send(*(append(str(n), Authorization="Bearer k") for n in range(4)))
    log.await_started("0", "1", "2", "3")
    log.reply("2")
    stopping = ApiError("shutting_down", "no more")
    log.inside(lambda: log.open["1"].fail(stopping))
    log.reply("0")
    assert [wire.read().status for _ in range(2)] == [200, 503]
    assert wire.at_end()
    eventually(lambda: log.open["3"].closed)
    assert log.running.inflight() == 0


def test_each_request_takes_a_place_of_its_key(serve: Serve) -> None:
    log = Log(serve, keys="k", max_inflight_per_key=2)
    wire = log.send(*(append(str(n), Authorization="Bearer k") for n in range(3)))
    log.await_started("0", "1")
    log.reply("1", "0")
    assert [wire.read().status for _ in range(3)] == [200, 200, 429]


def test_those_that_wait_are_bounded(serve: Serve) -> None:
    log = Log(serve, limits=Limits(waiting_requests=8))
    names = [str(n) for n in range(40)]
    wire = log.send(*map(append, names))
    # One is worked on, and eight wait.
    log.await_started(*names[:9])
    for name in names:
        eventually(lambda name=name: name in log.open)  # type: ignore[misc]
        assert len(log.open) <= 9
        log.reply(name)
        assert wire.read().body == name.encode()


# --- known heads --------------------------------------------------------------------------------------------


def make_known(log: Log, *requests: bytes) -> Wire:
    """A connection to a server that has seen the heads of these requests."""
    wire = log.send(read())
    assert wire.read().status == 200
    for request in requests:
        wire.send(request)
        eventually(lambda: log.open)
        log.reply(*log.open)
        assert wire.read().status == 200
    heads = log.running.server.context.known_heads.heads
    assert heads
    log.started.clear()
    return wire


def mixed(count: int) -> tuple[bytes, list[str]]:
    """Requests with known and unknown heads, and the names of those that append."""
    requests, names = [], []
    for n in range(count):
        if n % 7 == 5:
            requests.append(read())
            continue
        name = f"{n:03}"
        names.append(name)
        headers = {"X-New": name} if n % 3 == 1 else {"Idempotency-Key": name} if n % 3 == 2 else {}
        requests.append(append(name, **headers))
    return b"".join(requests), names


def answer_all(log: Log, wire: Wire, count: int, seed: int = 0) -> list[bytes]:
    """Reply to whatever is open, in an order of its own, until so many replies have come."""
    chance = random.Random(seed)
    is_over = False

    def reply_some() -> None:
        names = list(log.open)
        chance.shuffle(names)
        for name in names[: chance.randrange(len(names) + 1)]:
            log.open.pop(name).reply(name.encode())
        if not is_over:
            log.running.loop.call_later(0.001, reply_some)

    log.inside(reply_some)
    found = [wire.read().body for _ in range(count)]
    is_over = True
    return found


@pytest.mark.parametrize("seed", range(5))
def test_pipelined_requests_known_and_unknown(log: Log, seed: int) -> None:
    wire = make_known(log, append("000"), append("000", **{"Idempotency-Key": "000"}))
    data, names = mixed(64)
    wire.send(data)
    replies = answer_all(log, wire, 64, seed)
    assert [reply.decode() for reply in replies if reply != b"[]"] == names
    assert replies == [b"[]" if n % 7 == 5 else b"%03d" % n for n in range(64)]
    assert [name for name in log.started if name != "read t"] == names


def test_a_known_head_after_one_that_closes_the_connection(log: Log) -> None:
    wire = make_known(log, append("000"))
    wire.send(append("1", Connection="close") + append("002"))
    log.await_started("1")
    log.reply("1")
    assert wire.read().body == b"1"
    assert wire.at_end()


def test_a_known_head_after_half_an_empty_line_is_refused(log: Log) -> None:
    wire = make_known(log, append("000"))
    parser: Any = next(iter(log.running.server.context.connections))._parser  # type: ignore[attr-defined]
    wire.send(b"\r")
    eventually(lambda: not parser.is_between)
    wire.send(append("002"))
    assert wire.read().status == 400
    assert wire.at_end()


# --- the whole application ----------------------------------------------------------------------------------


def record(number: int, key: str | None = None, topic: str = "t") -> bytes:
    body = b'{"records":[{"data":%d}]}' % (1000 + number)
    return raw_request("POST", f"/v0/topics/{topic}", body, {"Idempotency-Key": key} if key else None)


DIFF = raw_request("POST", "/v0/topics/t/diff", b'{"from_seq":0,"limit":1000}')


def test_what_is_wrong_with_one_is_told_to_that_one(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/t", {})
    wire = app.wire()
    for number in range(3):
        wire.send(record(number))
        assert wire.read().status == 200
    bad = record(4).replace(b"1004", b"10x4")
    wire.send(record(3) + bad + record(5) + raw_request("GET", "/v0/health") + record(6))
    assert [wire.read().status for _ in range(5)] == [200, 400, 200, 200, 200]
    wire.send(DIFF)
    assert [one["data"] for one in wire.read().json["records"]] == [1000, 1001, 1002, 1003, 1005, 1006]

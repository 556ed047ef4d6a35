"""Over the wire: writers to unimportant topics make way for readers of important ones, and lose nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.bulk import ARROW
from tests.http.streaming import RunningApp, SocketClient
from tests.support import Wire, raw_request
from tests.support.arrow import arrow_stream
from topics.flow import priority_scheduler
from topics.log import Append

Start = Callable[..., RunningApp]
WRITE = raw_request("POST", "/v0/topics/low", b'{"records":[{"data":1},{"data":2}]}')


def prepared(start: Start) -> RunningApp:
    app = start()
    app.call("PUT", "/v0/topics/high", {"priority": 900})
    app.call("PUT", "/v0/topics/low", {"priority": -500})
    app.write("high", 1)
    return app


def is_unimportant(priority: int) -> bool:
    return priority < 0


def test_every_write_is_answered_and_none_is_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # So small a share that nearly every write has to wait.
    monkeypatch.setattr(priority_scheduler, "SHARE_S", 1e-9)
    app = prepared(start)
    writers, each = 16, 20

    def write(_: int) -> int:
        wire = Wire(app.address)
        try:
            answers = []
            for _ in range(each):
                wire.send(WRITE)
                answers.append(wire.read().json)
            return sum(answer["count"] for answer in answers)
        finally:
            wire.close()

    def read() -> None:
        for _ in range(100):
            assert app.call("POST", "/v0/topics/high/diff", {}).status == 200

    with ThreadPoolExecutor(writers + 1) as pool:
        reading = pool.submit(read)
        counted = sum(pool.map(write, range(writers)))
        reading.result()
    assert counted == writers * each * 2
    assert app.call("GET", "/v0/topics/low").json["head_seq"] == counted
    assert app.app.node.scheduler.held == 0


def test_a_client_that_leaves_while_it_waits_gives_its_place_back(
    start: Start, wait_until: Callable[..., None]
) -> None:
    app = start(api_keys="k")
    key = app.app.server.context.keyring.keys[0]
    bearer = {"Authorization": "Bearer k"}
    app.call("PUT", "/v0/topics/high", {"priority": 900}, **bearer)
    app.call("PUT", "/v0/topics/low", {"priority": -500}, **bearer)
    held: list[Callable[[], None]] = []
    scheduler = app.app.node.scheduler

    def hold(priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        held.append(work)
        return True

    scheduler.active = True
    scheduler.outranks = is_unimportant  # type: ignore[method-assign]
    scheduler.holds = hold  # type: ignore[method-assign]
    wire = Wire(app.address)
    wire.send(raw_request("POST", "/v0/topics/low", b'{"records":[{"data":1}]}', bearer))
    wait_until(lambda: len(held) == 1)
    assert key.inflight == 1
    # With a reset: who only ends its side may still want the answer.
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
    wait_until(lambda: key.inflight == 0)
    app.inside(held[0])
    assert app.call("GET", "/v0/topics/low", **bearer).json["head_seq"] == 0


# --- admission of every protocol --------------------------------------------------------------------------


class Holding:
    """Replaces the scheduler's decision: writes to unimportant topics wait until they are let in."""

    def __init__(self, app: RunningApp) -> None:
        self._app = app
        self._works: list[Callable[[], None]] = []
        self.patient: list[bool] = []
        self.active = True
        scheduler = app.app.node.scheduler
        scheduler.active = True
        scheduler.outranks = lambda priority: self.active and is_unimportant(priority)  # type: ignore[method-assign]
        scheduler.holds = self._hold  # type: ignore[method-assign]

    def _hold(self, priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        if not self.active or not is_unimportant(priority):
            return False
        self.patient.append(patient)
        self._works.append(work)
        return True

    @property
    def held(self) -> int:
        return len(self._works)

    def let_in(self) -> None:
        self._app.inside(self._works.pop(0))


def head(app: RunningApp) -> int:
    seq: int = app.call("GET", "/v0/topics/low").json["head_seq"]
    return seq


def publish(client: SocketClient, number: int, **fields: object) -> None:
    client.send(op="publish", request_id=number, topic="low", records=[{"data": number}], **fields)


def test_a_publish_waits_for_its_turn(start: Start, wait_until: Callable[..., None]) -> None:
    app = prepared(start)
    holding = Holding(app)
    client = app.socket()
    publish(client, 1)
    wait_until(lambda: holding.held == 1)
    assert head(app) == 0
    holding.let_in()
    assert (client.next("ack")["first_seq"], head(app)) == (1, 1)


def test_publishes_of_one_socket_keep_their_order(start: Start, wait_until: Callable[..., None]) -> None:
    app = prepared(start)
    holding = Holding(app)
    client = app.socket()
    publish(client, 1)
    wait_until(lambda: holding.held == 1)
    # Nothing else has to wait any more, but these came later.
    holding.active = False
    publish(client, 2)
    publish(client, 3, config={"ttl_ms": -1})
    publish(client, 4)
    other = app.socket()
    publish(other, 5)
    assert other.next("ack")["first_seq"] == 1
    holding.let_in()
    assert [client.read()["request_id"] for _ in range(4)] == [3, 1, 2, 4]
    records = app.call("POST", "/v0/topics/low/diff", {}).json["records"]
    assert [record["data"] for record in records] == [5, 1, 2, 4]


def test_a_publish_that_is_refused_when_its_turn_comes_lets_the_next_one_pass(
    start: Start, wait_until: Callable[..., None]
) -> None:
    app = prepared(start)
    holding = Holding(app)
    client = app.socket()
    client.send(op="publish", request_id=1, topic="low", records=[])
    wait_until(lambda: holding.held == 1)
    publish(client, 2)
    holding.let_in()
    assert client.next("error")["code"] == "invalid_request"
    wait_until(lambda: holding.held == 1)
    holding.let_in()
    assert client.next("ack")["request_id"] == 2


def test_a_publish_that_fails_behind_one_that_waited_is_the_one_that_is_told(
    start: Start, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = prepared(start)
    holding = Holding(app)
    client = app.socket()
    publish(client, 1)
    wait_until(lambda: holding.held == 1)
    holding.active = False
    publish(client, 2)
    publish(client, 3)
    engine = app.app.node.engine
    append, numbers = engine.append, iter((1, 2, 3))

    def failing(request: Append) -> None:
        if next(numbers) == 2:
            raise OSError(24, "too many open files")
        append(request)

    monkeypatch.setattr(engine, "append", failing)
    holding.let_in()
    answers = {answer["request_id"]: answer["op"] for answer in (client.read() for _ in range(3))}
    assert answers == {1: "ack", 2: "error", 3: "ack"}


def test_a_socket_that_closes_while_its_publish_waits_writes_nothing(
    start: Start, wait_until: Callable[..., None]
) -> None:
    app = prepared(start)
    holding = Holding(app)
    client = app.socket()
    publish(client, 1)
    wait_until(lambda: holding.held == 1)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    app.inside(lambda: [connection.abort() for connection in app.app.server.context.streams])
    wait_until(lambda: not app.app.service.streams.open)
    holding.let_in()
    assert head(app) == 0


def test_each_batch_of_an_arrow_append_waits_for_its_turn(
    start: Start, wait_until: Callable[..., None]
) -> None:
    app = prepared(start)
    holding = Holding(app)
    wire = app.wire()
    body = arrow_stream({"data": ["1", "2"]}, {"data": ["3"]})
    wire.send(raw_request("POST", "/v0/topics/low/append", body, {"Content-Type": ARROW}))
    for expected in (0, 2):
        wait_until(lambda: holding.held == 1)
        assert head(app) == expected
        holding.let_in()
    answer = wire.read()
    assert (answer.status, answer.json["count"], head(app)) == (200, 3, 3)
    # Once a part of it is written, the rest is not refused because of load.
    assert holding.patient == [False, True]


def test_a_commit_waits_for_its_turn(start: Start, wait_until: Callable[..., None]) -> None:
    app = prepared(start)
    wire = app.wire()
    part = arrow_stream({"data": ["1", "2"]})
    answer = wire.request("PUT", "/v0/stages/s/parts/0?topic=low", part, {"Content-Type": ARROW})
    assert answer.status == 200
    holding = Holding(app)
    commit = b'{"identity":{"id":"i","batch":0},"parts":["0"]}'
    wire.send(raw_request("POST", "/v0/stages/s/commit", commit))
    wait_until(lambda: holding.held == 1)
    assert head(app) == 0
    holding.let_in()
    assert (wire.read().status, head(app)) == (200, 2)


def test_pressure_refuses_what_writes_and_what_reads_by_every_way(start: Start) -> None:
    app = prepared(start)
    app.call("PUT", "/v0/topics/jobs", {"priority": -500, "type": "queue"})
    wire, client = app.wire(), app.socket()
    part = arrow_stream({"data": ["1"]})
    arrow = {"Content-Type": ARROW}
    wire.request("PUT", "/v0/stages/s/parts/0?topic=low", part, arrow)
    app.inside(lambda: setattr(app.app.node.load_shedder, "lag_ms", 700.0))
    app.app.node.load_shedder.observe = lambda *_: None  # type: ignore[method-assign]
    commit = b'{"identity":{"id":"i","batch":0},"parts":["0"]}'
    answers = [
        wire.request("POST", "/v0/topics/low", b'{"records":[{"data":1}]}'),
        wire.request("POST", "/v0/topics/low/append", part, arrow),
        wire.request("POST", "/v0/stages/s/commit", commit),
        wire.request("POST", "/v0/topics/low/diff", b"{}"),
        wire.request("POST", "/v0/topics/low/scan", b"{}"),
        wire.request("POST", "/v0/topics/jobs/claim", b'{"node":"w"}'),
        wire.request("POST", "/v0/watch", b'{"topics":{"low":{}}}'),
    ]
    assert [(answer.status, answer.code) for answer in answers] == [(429, "throttled")] * len(answers)
    publish(client, 1)
    assert client.next("error")["code"] == "throttled"
    client.send(op="subscribe", request_id=2, topic="low")
    assert client.next("error")["code"] == "throttled"
    app.app.node.load_shedder.lag_ms = 0.0
    assert head(app) == 0

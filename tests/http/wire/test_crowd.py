"""Connections that are read and answered together: to their clients, they are like any other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.streaming import RunningApp
from tests.support import Wire, eventually, raw_request
from tests.support.accelerated import NATIVE, WAYS, using
from topics.http.wire.body_receiver import BodyReceiver

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the accelerator is not compiled")
BODY = b'{"records":[{"data":100}]}'
APPEND = raw_request("POST", "/v0/topics/t", BODY)
DIFF = raw_request("POST", "/v0/topics/t/diff", b'{"from_seq":0,"limit":1}')
BIG = raw_request("POST", "/v0/topics/big/diff", b'{"from_seq":0,"limit":1000}')


@pytest.fixture
def app(tmp_path: Path) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path / "data")
    app.call("PUT", "/v0/topics/t", {})
    yield app
    app.stop()


def asked(wire: Wire, request: bytes = APPEND) -> Any:
    wire.send(request)
    told = wire.read()
    assert told.status == 200, told.body
    return told.json


def connections(app: RunningApp) -> Any:
    context = app.app.server.context
    return app.inside(lambda: [*context.connections, *context.streams])


def members(app: RunningApp) -> int:
    return sum(connection.descriptor >= 0 for connection in connections(app))


@pytest.fixture
def member(app: RunningApp) -> Wire:
    """A connection whose socket is read with others."""
    wire = app.wire()
    for _ in range(4):
        asked(wire)
    assert members(app) == 1
    return wire


def test_a_connection_joins_when_its_second_request_travels(app: RunningApp) -> None:
    """A client that comes for one request only would not be worth it."""
    asked(wire := app.wire())
    asked(wire)
    wire.close()
    eventually(lambda: not connections(app))
    asked(wire := app.wire())
    assert members(app) == 0
    asked(wire)
    assert members(app) == 1
    assert [asked(wire)["seqs"], asked(wire)["seqs"]] == [[5], [6]]


class Interposed:
    """The sockets of a crowd, and what happens behind the first time that they are read."""

    def __init__(self, sockets: Any, then: Callable[[], None]) -> None:
        self._sockets = sockets
        self._then: Callable[[], None] | None = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sockets, name)

    def receive(self, heads: Any) -> Any:
        found = self._sockets.receive(heads)
        then, self._then = self._then, None
        if then is not None:
            then()
        return found


def test_what_comes_behind_a_request_does_not_overtake_it(app: RunningApp, member: Wire) -> None:
    """Not even if it is known, the other is not, and both are read in the same turn of the loop."""
    other = app.wire()
    for _ in range(4):
        asked(other)
    assert members(app) == 2
    crowd = app.app.server.context.crowd
    assert crowd is not None

    def send_both() -> None:
        crowd._sockets = Interposed(crowd._sockets, lambda: member.send(APPEND))
        member.send(DIFF)
        other.send(APPEND)

    app.inside(send_both)
    assert "records" in member.read().json
    assert member.read().json["first_seq"] > 8
    assert other.read().status == 200


def test_many_writers_get_seqs_of_their_own(app: RunningApp) -> None:
    wires = [app.wire() for _ in range(20)]
    seqs = []
    for _ in range(30):
        for wire in wires:
            wire.send(APPEND)
        told = [wire.read().json for wire in wires]
        assert all(one["first_seq"] == one["last_seq"] == one["head_seq"] for one in told)
        seqs += [one["first_seq"] for one in told]
    assert sorted(seqs) == [*range(1, 601)]
    assert members(app) == 20


def test_other_requests_are_answered_as_ever(app: RunningApp, member: Wire) -> None:
    assert asked(member, DIFF)["records"][0]["$seq"] == 1
    member.send(raw_request("GET", "/v0/nowhere"))
    assert member.read().status == 404
    assert asked(member)["seqs"] == [5]
    assert members(app) == 1


def test_pieces_of_a_request(app: RunningApp, member: Wire) -> None:
    for cut in (1, 20, APPEND.index(b"\r\n\r\n") + 2, APPEND.index(b"\r\n\r\n") + 4, len(APPEND) - 1):
        before = app.inside(lambda: (one := only(app))._begun or one._requests)
        member.send(APPEND[:cut])
        eventually(
            lambda before=before: app.inside(lambda: only(app)._begun or only(app)._requests) != before
        )
        member.send(APPEND[cut:])
        assert member.read().status == 200


def only(app: RunningApp) -> Any:
    return next(iter(app.app.server.context.connections))


def test_requests_sent_ahead_are_answered_in_order(app: RunningApp, member: Wire) -> None:
    member.send(APPEND * 3 + DIFF + APPEND * 100)
    told = [member.read().json for _ in range(104)]
    assert [one["seqs"] for one in told[:3]] == [[5], [6], [7]]
    assert told[3]["records"][0]["$seq"] == 1
    assert [one["seqs"][0] for one in told[4:]] == [*range(8, 108)]
    assert asked(member)["seqs"] == [108]


def test_a_client_that_does_not_read_is_left_alone(app: RunningApp, member: Wire) -> None:
    """More than it should have waiting: nothing more is read from it, until it has read."""
    app.write("big", *["x" * 1000] * 1000)
    count = 12
    sender = threading.Thread(target=member.send, args=(BIG * count + APPEND,))
    sender.start()
    eventually(lambda: app.inside(lambda: only(app)._write_paused))
    assert members(app) == 0
    for _ in range(count):
        assert len(member.read().json["records"]) == 1000
    assert member.read().json["seqs"] == [5]
    sender.join()
    assert asked(member)["seqs"] == [6]
    eventually(lambda: members(app) == 1)


def test_a_request_and_the_end_in_one_go(app: RunningApp, member: Wire) -> None:
    member.send(APPEND)
    member.socket.shutdown(socket.SHUT_WR)
    told = member.read()
    assert (told.status, told.json["seqs"]) == (200, [5])
    assert member.at_end()
    eventually(lambda: not connections(app))


def test_a_client_that_goes_leaves_nothing(app: RunningApp, member: Wire) -> None:
    member.close()
    eventually(lambda: not connections(app))
    for _ in range(50):
        wire = app.wire()
        for _ in range(3):
            asked(wire)
        wire.close()
    eventually(lambda: not connections(app))


def test_a_stream_takes_its_connection_along(app: RunningApp, member: Wire) -> None:
    member.send(raw_request("GET", "/v0/tail?topic=t", None, {"Accept": "text/event-stream"}))
    assert member.file.readline().startswith(b"HTTP/1.1 200")
    eventually(lambda: app.inside(lambda: len(app.app.server.context.streams)) == 1)
    assert members(app) == 0
    # Its end is noticed.
    member.close()
    eventually(lambda: not connections(app))


def test_what_is_not_http_is_refused(app: RunningApp, member: Wire) -> None:
    member.send(b"\x00garbage\r\n\r\n")
    assert member.read().status == 400
    assert member.at_end()


def test_a_server_that_stops_refuses_and_closes(app: RunningApp, member: Wire) -> None:
    app.inside(app.app.readiness.drain)
    member.send(APPEND)
    told = member.read()
    assert (told.status, told.json["error"]["code"]) == (503, "shutting_down")
    assert member.at_end()


def test_a_large_body_is_received_outside_and_its_connection_comes_back(
    app: RunningApp, member: Wire
) -> None:
    records = b",".join(b'{"data":"%0200d"}' % n for n in range(2000))
    large = raw_request("POST", "/v0/topics/t", b'{"records":[%b]}' % records)
    member.send(large[:1000])
    eventually(lambda: isinstance(only(app).transport.get_protocol(), BodyReceiver))
    assert members(app) == 0
    member.send(large[1000:])
    assert member.read().json["count"] == 2000
    asked(member)
    assert members(app) == 1
    assert asked(member)["seqs"] == [2006]


def test_a_defect_costs_one_connection_only(
    app: RunningApp, member: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []
    app.inside(lambda: app.loop.set_exception_handler(lambda _, told: heard.append(told)))
    other = app.wire()
    for _ in range(3):
        asked(other)

    def broken(self: Any, data: bytes) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(type(only(app)), "parse", broken)
        member.send(raw_request("GET", "/v0/health"))
        assert member.file.read() == b""
    assert isinstance(heard[0]["exception"], ZeroDivisionError)
    assert asked(other)["count"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_bytes_of_an_answer_are_the_same_either_way(tmp_path: Path, way: str) -> None:
    with using(WAYS[way]):
        app = RunningApp(tmp_path / "data")
        app.call("PUT", "/v0/topics/t", {})
        wire = app.wire()
        for _ in range(3):
            asked(wire)
        assert members(app) == (way == "accelerated")
        wire.send(APPEND)
        told = wire.read()
        app.stop()
    assert list(told.headers) == ["content-type", "date", "content-length"]
    fields = ["topic", "epoch", "first_seq", "last_seq", "seqs", "head_seq", "count", "created", "deduped"]
    assert list(told.json) == [*fields, "performance"]

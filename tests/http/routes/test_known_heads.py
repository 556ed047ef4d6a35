"""Appends on connections whose request heads are known: clients see no difference from a parsed request."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.streaming import RunningApp
from tests.support import Answer, Wire, eventually, raw_request
from tests.support.codecs import using_codec
from topics import codec

KEY = {"Authorization": "Bearer one"}
AS_LONG = b'{"records":[{"data":100}]}'


@pytest.fixture(params=["keys", "no keys", "python codec"])
def app(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    api_keys = "one:rw,all" if request.param == "keys" else ""
    with using_codec("python" if request.param == "python codec" else codec.NAME):
        app = RunningApp(tmp_path / "data", api_keys=api_keys)
        app.call("PUT", "/v0/topics/t", {}, Authorization="Bearer all")
        yield app
        app.stop()


def append(body: bytes = AS_LONG, **headers: str) -> bytes:
    return raw_request("POST", "/v0/topics/t", body, KEY | headers)


def data(app: RunningApp) -> list[Any]:
    page = app.call("POST", "/v0/topics/t/diff", {"limit": 1000}, **KEY)
    return [record["data"] for record in page.json["records"]]


@pytest.fixture
def known(app: RunningApp) -> Wire:
    """A connection that has sent the same head several times."""
    wire = app.wire()
    for _ in range(3):
        wire.send(append())
        assert wire.read().status == 200
    assert app.inside(lambda: len(app.app.server.context.known_heads.heads)) == 1
    return wire


def hold(app: RunningApp) -> None:
    """Commit nothing until `let_go`."""
    app.inside(lambda: setattr(app.app.node.commit, "_paused", 1))


def let_go(app: RunningApp) -> None:
    def go() -> None:
        app.app.node.commit._paused = 0
        app.app.node.commit._tick()

    app.inside(go)


def is_open(app: RunningApp) -> None:
    eventually(lambda: app.inside(lambda: only(app).busy))


def only(app: RunningApp) -> Any:
    return next(iter(app.app.server.context.connections))


def ask(wire: Wire, body: bytes = AS_LONG, **headers: str) -> Answer:
    wire.send(append(body, **headers))
    return wire.read()


def test_how_long_they_held_the_loop_is_told_of_their_route(app: RunningApp, known: Wire) -> None:
    head = next(iter(app.inside(lambda: list(app.app.server.context.known_heads.heads.values()))))
    app.inside(lambda: setattr(head.route.holds, "longest_s", 0.0))
    ask(known)
    assert app.inside(lambda: head.route.holds.longest_s) > 0


def test_a_topic_that_is_not_there_any_more_is_made(app: RunningApp, known: Wire) -> None:
    app.call("DELETE", "/v0/topics/t", Authorization="Bearer all")
    told = ask(known)
    assert (told.status, told.json["created"], told.json["seqs"]) == (201, True, [1])


def test_keys_of_known_heads(app: RunningApp, known: Wire) -> None:
    seqs = [ask(known, **{"Idempotency-Key": key}).json["seqs"] for key in ("a", "b", "a", "c", "b")]
    assert seqs == [[4], [5], [4], [6], [5]]
    assert ask(known, **{"Idempotency-Key": "k" * 257}).status == 400
    assert ask(known, **{"Idempotency-Key": "k" * 256}).json["seqs"] == [7]


@pytest.mark.parametrize("app", ["keys"], indirect=True)
def test_places_of_a_key_come_back(app: RunningApp, known: Wire) -> None:
    keys = {key.name: key for key in app.inside(lambda: list(app.app.server.context.keyring.keys))}
    assert all(key.inflight == 0 for key in keys.values())
    hold(app)
    known.send(append())
    is_open(app)
    assert sum(key.inflight for key in keys.values()) == 1
    let_go(app)
    assert known.read().status == 200
    assert all(key.inflight == 0 for key in keys.values())


def test_under_pressure_they_are_refused(app: RunningApp, known: Wire) -> None:
    app.inside(lambda: setattr(app.app.node.load_shedder, "lag_ms", 1e9))
    told = ask(known)
    assert (told.status, told.json["error"]["code"]) == (429, "throttled")
    app.inside(lambda: setattr(app.app.node.load_shedder, "lag_ms", 0.0))
    assert ask(known).json["seqs"] == [4]


def test_a_client_that_has_ended_its_side_is_answered_and_left(app: RunningApp, known: Wire) -> None:
    hold(app)
    known.send(append())
    is_open(app)
    known.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: app.inside(lambda: only(app)._read_control.is_half_closed))
    let_go(app)
    told = known.read()
    assert (told.status, told.json["seqs"], told.headers["connection"]) == (200, [4], "close")
    assert known.file.read() == b""


@pytest.mark.parametrize("body", [AS_LONG, b'{"records":[{"data":  7}]}'])
def test_what_a_client_sent_before_it_went_is_written(app: RunningApp, known: Wire, body: bytes) -> None:
    hold(app)
    known.send(append(body))
    is_open(app)
    abandoned = app.app.server.request_log.abandoned_requests
    # Not just its side: a reset says that nobody listens any more.
    known.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    known.file.close()
    known.socket.close()
    eventually(lambda: not app.inside(lambda: len(app.app.server.context.connections)))
    let_go(app)
    eventually(lambda: len(data(app)) == 4)
    assert app.app.server.request_log.abandoned_requests == abandoned + 1
    keys = app.inside(lambda: list(app.app.server.context.keyring.keys))
    assert all(key.inflight == 0 for key in keys)

"""Requests of one connection do not wait for each other, and each answer for its own client's reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.http.http2.conftest import Speak
from tests.http.http2.speaking import JSON
from tests.http.running import Running
from topics.http import http2
from topics.http.context import Limits
from topics.http.exchange import Exchange
from topics.http.routing import Body, Route

Serve = Callable[..., Running]
Wait = Callable[..., None]
BIG = 1 << 20


@pytest.fixture
def parked() -> list[Exchange]:
    return []


@pytest.fixture
def streams() -> list[Any]:
    return []


@pytest.fixture
def routes(parked: list[Exchange], streams: list[Any]) -> list[Route]:
    def echo(exchange: Exchange) -> None:
        exchange.reply(exchange.name.encode() + exchange.body)

    def park(exchange: Exchange) -> None:
        exchange.on_close(lambda: parked.remove(exchange))
        parked.append(exchange)

    def stream(exchange: Exchange) -> None:
        streams.append(exchange.open_stream(b"text/event-stream"))

    return [
        Route("GET", "/now/:n", echo),
        Route("POST", "/now/:n", echo, body=Body.REQUIRED),
        Route("GET", "/later/:n", park),
        Route("GET", "/big/:n", lambda exchange: exchange.reply(bytes(BIG))),
        Route("GET", "/stream", stream, event_stream=True),
    ]


def inside(running: Running, action: Callable[[], Any]) -> None:
    running.loop.call_soon_threadsafe(action)


def test_answers_come_as_they_are_ready(
    serve: Serve, routes: list[Route], parked: list[Exchange], speak: Speak, wait_until: Wait
) -> None:
    running = serve(routes)
    client = speak(running)
    late = client.ask("GET", "/later/1")
    assert client.request("GET", "/now/2").body == b"2"
    assert client.request("POST", "/now/3", b'"x"').body == b'3"x"'
    assert client.request("GET", "/nowhere").status == 404
    assert not client.streams[late].headers
    inside(running, lambda: parked[0].reply(b"1"))
    assert client.answer(late).body == b"1"


def test_a_body_may_come_in_pieces_between_other_requests(
    serve: Serve, routes: list[Route], speak: Speak
) -> None:
    client = speak(serve(routes))
    slow = client.ask("POST", "/now/1", b'"a', end=False)
    assert client.request("GET", "/now/2").body == b"2"
    client.send(slow, b"b" * 100_000)
    assert client.request("GET", "/now/3").body == b"3"
    client.send(slow, b'"', end=True)
    assert client.answer(slow).body == b'1"a' + b"b" * 100_000 + b'"'


def test_a_client_that_takes_a_request_back_is_noticed(
    serve: Serve, routes: list[Route], parked: list[Exchange], speak: Speak, wait_until: Wait
) -> None:
    running = serve(routes, keys="secret")
    client = speak(running)
    key = {"authorization": "Bearer secret"}
    late = client.ask("GET", "/later/1", None, key)
    wait_until(lambda: len(parked) == 1)
    assert running.inflight() == 1
    client.h2.reset_stream(late)
    client.flush()
    wait_until(lambda: not parked)
    wait_until(lambda: running.inflight() == 0)
    assert running.server.request_log.abandoned_requests == 1
    assert client.request("GET", "/now/2", None, key).body == b"2"


def test_an_answer_that_is_not_read_holds_no_other_up(
    serve: Serve, routes: list[Route], speak: Speak, wait_until: Wait
) -> None:
    running = serve(routes)
    # The connection may be sent plenty, each stream 64 KiB.
    client = speak(running, reads=False)
    client.h2.increment_flow_control_window(100 << 20)
    client.flush()
    unread = [client.ask("GET", f"/big/{n}") for n in range(3)]
    assert client.request("GET", "/now/2").body == b"2"
    for stream in unread:
        assert len(client.begin(stream).body) <= 65_535
    (connection,) = running.server.context.connections
    wait_until(lambda: connection.unsent == 3 * (BIG - 65_535))  # type: ignore[attr-defined]
    assert running.server.context.busy()
    # As soon as it reads one, it gets that one.
    client.h2.increment_flow_control_window(BIG, unread[1])
    client.flush()
    assert len(client.answer(unread[1]).body) == BIG
    assert not client.streams[unread[0]].ended


def test_with_too_much_unread_new_requests_wait(
    serve: Serve,
    routes: list[Route],
    speak: Speak,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "MOST_UNSENT", BIG)
    running = serve(routes)
    client = speak(running, reads=False)
    client.h2.increment_flow_control_window(100 << 20)
    assert client.request("GET", "/now/0").body == b"0"
    unread = [client.ask("GET", f"/big/{n}") for n in range(4)]
    waiting = client.ask("POST", "/now/5", b'"x"')
    # Two are made, the others are not begun: each would be another megabyte.
    (connection,) = running.server.context.connections
    wait_until(lambda: connection.unsent == 2 * (BIG - 65_535))  # type: ignore[union-attr]
    client.h2.ping(b"12345678")
    client.flush()
    while not client.pongs:
        assert client.hear()
    assert not client.streams[waiting].headers
    assert connection.unsent == 2 * (BIG - 65_535)  # type: ignore[union-attr]
    for stream in unread:
        client.h2.increment_flow_control_window(BIG, stream)
    client.flush()
    for stream in unread:
        assert len(client.answer(stream).body) == BIG
    assert client.answer(waiting).body == b'5"x"'


def test_an_answer_that_is_never_read_ends_and_the_others_go_on(
    serve: Serve, routes: list[Route], speak: Speak
) -> None:
    client = speak(serve(routes, limits=Limits(write_stall_s=0.2, sweep_s=0.05)), reads=False)
    client.h2.increment_flow_control_window(100 << 20)
    stuck = client.answer(client.ask("GET", "/big/1"))
    assert (stuck.reset, stuck.ended) == (8, False)
    assert client.request("GET", "/now/2").body == b"2"


def test_a_body_that_does_not_come_ends_and_the_others_go_on(
    serve: Serve, routes: list[Route], speak: Speak
) -> None:
    client = speak(serve(routes, limits=Limits(body_idle_s=0.2, sweep_s=0.05)))
    stuck = client.answer(client.ask("POST", "/now/1", b'"a', end=False))
    assert stuck.reset == 8
    assert client.request("GET", "/now/2").body == b"2"


def test_a_stream_presses_back_and_is_let_go(
    serve: Serve, routes: list[Route], streams: list[Any], speak: Speak, wait_until: Wait
) -> None:
    running = serve(routes)
    client = speak(running, reads=False)
    one, other = client.ask("GET", "/stream"), client.ask("GET", "/stream")
    wait_until(lambda: len(streams) == 2)
    assert len(running.server.context.streams) == 2
    inside(running, lambda: streams[0].write(bytes(400_000)))
    wait_until(lambda: streams[0].choked)
    assert streams[0].buffered() == 400_000 - 65_535
    assert not streams[1].choked
    # All of the window is gone with the first one; the client makes room for the other.
    client.h2.increment_flow_control_window(1000)
    client.flush()
    inside(running, lambda: streams[1].write(b"x"))
    assert client.begin(other).body == b"x"
    client.h2.increment_flow_control_window(BIG)
    client.h2.increment_flow_control_window(BIG, one)
    client.flush()
    wait_until(lambda: not streams[0].choked)
    closed: list[int] = []
    for n, stream in enumerate(streams):
        inside(running, lambda n=n, stream=stream: stream.on_close(lambda: closed.append(n)))  # type: ignore[misc]
    inside(running, streams[1].close)
    assert client.answer(other).ended
    client.h2.reset_stream(one)
    client.flush()
    wait_until(lambda: sorted(closed) == [0, 1])
    assert not running.server.context.streams


def test_continue_is_told_before_a_body_and_not_for_one_that_is_refused(
    serve: Serve, routes: list[Route], speak: Speak
) -> None:
    client = speak(serve(routes))
    expect = {"expect": "100-continue"}
    asked = client.ask("POST", "/now/1", None, JSON | expect, end=False)
    while not client.streams[asked].informed:
        assert client.hear()
    client.send(asked, b"1", end=True)
    assert (client.answer(asked).informed, client.answer(asked).body) == (["100"], b"11")
    refused = client.ask("POST", "/nowhere", None, expect, end=False)
    heard = client.answer(refused)
    assert (heard.informed, heard.status) == ([], 404)


def test_a_refused_body_is_read_and_forgotten_or_stopped(
    serve: Serve, routes: list[Route], speak: Speak
) -> None:
    client = speak(serve(routes, max_body_bytes=100_000))
    small = client.answer(client.ask("POST", "/nowhere", bytes(500_000)))
    assert (small.status, small.reset) == (404, None)
    for headers in ({}, {"content-length": str(5 << 20)}):
        large = client.ask("POST", "/now/1", bytes(5 << 20), headers)
        heard = client.answer(large)
        assert (heard.status, heard.json["error"]["code"]) == (413, "payload_too_large")
        # After its answer it is told to stop, or it has sent everything.
        assert heard.reset in (None, 0)
    assert client.request("GET", "/now/2").body == b"2"
    assert client.h2.local_flow_control_window(client.ask("GET", "/now/1", end=False)) > 0


def test_bodies_take_room_and_give_it_back(
    serve: Serve, routes: list[Route], speak: Speak, wait_until: Wait
) -> None:
    running = serve(routes)
    client = speak(running)
    room = running.server.context.request_room
    stream = client.ask("POST", "/now/1", bytes(20_000), end=False)
    wait_until(lambda: room.held >= 20_000)
    client.h2.reset_stream(stream)
    client.flush()
    wait_until(lambda: room.held == 0)


def test_what_is_no_request_is_refused_alone(serve: Serve, routes: list[Route], speak: Speak) -> None:
    client = speak(serve(routes, limits=Limits(target_bytes=1000)))
    for headers in ({":path": "/now/a b"}, {":authority": "u@x"}, {":method": "get"}):
        heard = client.request("GET", "/now/1", None, headers)
        assert (heard.status, heard.json["error"]["code"]) == (400, "invalid_request")
    assert client.request("GET", "/now/" + "x" * 1000).status == 414
    assert client.request("BREW", "/now/1").status == 405
    assert client.request("HEAD", "/now/1").body == b""
    assert client.request("GET", "/now/2").body == b"2"

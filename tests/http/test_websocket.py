"""The WebSocket: handshake, every command, every mistake, pressure, and the ways it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from wsproto.events import CloseConnection, Message, Ping

from tests.http.streaming import RunningApp, SocketClient
from tests.support import eventually
from topics.http import websocket as websocket_module
from topics.http.routes import socket as socket_module
from topics.http.websocket import text_frame

Start = Callable[..., RunningApp]


@pytest.fixture
def ws(app: RunningApp) -> SocketClient:
    return app.socket()


def refused(message: Any, code: str, request_id: Any = None) -> None:
    assert set(message) - {"detail"} == {"op", "request_id", "code", "message"}
    assert (message["op"], message["request_id"], message["code"]) == ("error", request_id, code)
    assert message["message"]


# --- subscribing ------------------------------------------------------------------------------------------


def test_a_socket_has_so_many_subscriptions_at_most(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    assert socket_module.MAX_SUBSCRIPTIONS == 1000
    monkeypatch.setattr(socket_module, "MAX_SUBSCRIPTIONS", 3)
    for name in "abcd":
        app.write(name, 1)
    client = app.socket()

    def subscribe(*names: str) -> Any:
        client.send(op="subscribe", topics={name: {"tail": True} for name in names})
        while (message := client.read())["op"] not in ("subscribed", "error"):
            pass
        return message

    assert subscribe("a", "b")["op"] == "subscribed"
    refused(subscribe("c", "d"), "throttled")
    assert subscribe("a", "c")["op"] == "subscribed"
    refusal = subscribe("d")
    refused(refusal, "throttled")
    assert refusal["detail"] == {"limit": "max_subscriptions", "max": 3}
    client.send(op="unsubscribe", topic="b")
    assert subscribe("d")["op"] == "subscribed"
    feeds = app.app.node.fanout.topics.values()
    assert sorted(each.name for feed in feeds for each in feed.subscriptions) == ["a", "c", "d"]


# --- mistakes ---------------------------------------------------------------------------------------------


def test_a_message_may_come_in_pieces(ws: SocketClient) -> None:
    text = json.dumps({"op": "ping", "request_id": "äöü" * 50}, ensure_ascii=False)
    for at in range(0, len(text), 7):
        ws.send_event(Message(data=text[at : at + 7], message_finished=at + 7 >= len(text)))
    assert ws.read()["request_id"] == "äöü" * 50


def test_messages_are_bounded(start: Start) -> None:
    app = start(max_body_bytes=1000)
    client = app.socket()
    client.send_text('{"op":"ping","request_id":"%s"}' % ("x" * 970))
    assert client.read()["op"] == "pong"
    client.send_text('{"op":"ping","request_id":"%s"}' % ("x" * 100_000))
    refused(client.read(), "payload_too_large")
    assert client.ask(op="ping")["op"] == "pong"
    # Nothing beyond the limit is kept while the rest of it arrives.
    for _ in range(50):
        client.send_event(Message(data="x" * 900, message_finished=False))
    (server_side,) = app.app.service.streams.open
    eventually(lambda: server_side._received == 50 * 900)
    assert sum(map(len, server_side._pieces)) <= 1000


# --- protocol, pressure, endings --------------------------------------------------------------------------


def test_frames_of_every_size() -> None:
    assert text_frame(b"") == b"\x81\x00"
    assert text_frame(b"x" * 125)[:2] == b"\x81\x7d"
    assert text_frame(b"x" * 126)[:4] == b"\x81\x7e\x00\x7e"
    assert text_frame(b"x" * 65535)[:4] == b"\x81\x7e\xff\xff"
    assert text_frame(b"x" * 65536)[:10] == b"\x81\x7f" + (65536).to_bytes(8, "big")


def test_the_closing_handshake(app: RunningApp, ws: SocketClient) -> None:
    ws.send_event(CloseConnection(code=1000, reason="bye"))
    event = ws.event()
    assert isinstance(event, CloseConnection)
    assert event.code == 1000
    assert ws.socket.recv(1) == b""
    eventually(lambda: app.footprint()["slots"] == 0)


def test_a_broken_protocol_ends_the_connection(app: RunningApp, ws: SocketClient) -> None:
    # Clients have to mask.
    ws.socket.sendall(b"\x81\x02{}")
    assert ws.read() is None
    assert ws.close_code == 1002
    assert ws.socket.recv(1) == b""
    eventually(lambda: app.footprint()["slots"] == 0)


def test_text_that_is_not_utf_8_ends_the_connection(app: RunningApp, ws: SocketClient) -> None:
    ws.socket.sendall(b"\x81\x82\x00\x00\x00\x00\xff\xff")
    assert ws.read() is None
    assert ws.close_code == 1007


def test_shutdown_is_announced(app: RunningApp, ws: SocketClient) -> None:
    app.write("t", 1)
    ws.ask(op="subscribe", topic="t", tail=True)
    ws.next("caught_up")
    app.begin_stop()
    refused(ws.read(), "server_shutting_down")
    assert ws.read() is None
    assert ws.close_code == 1001


def test_a_socket_that_does_not_read_stalls_only_itself(app: RunningApp, ws: SocketClient) -> None:
    app.call("PUT", "/v0/topics/t")
    ws.ask(op="subscribe", topic="t")
    ws.next("caught_up")
    for _ in range(40):
        app.write("t", *["x" * 10_000 for _ in range(40)])
    eventually(lambda: any(client.stalled for client in app.app.service.streams.open))
    stalled = next(client for client in app.app.service.streams.open if client.stalled)
    assert app.inside(lambda: stalled._held.buffered()) < 4 << 20
    # What it says meanwhile waits until it listens again.
    ws.send(op="ping", request_id="later")
    other = app.socket()
    assert other.ask(op="ping")["op"] == "pong"
    seqs: list[int] = []
    ponged = False
    while len(seqs) < 1600 or not ponged:
        message = ws.read()
        if message["op"] == "record":
            seqs += [r["$seq"] for r in message["records"]]
        ponged = ponged or message["op"] == "pong"
    assert seqs == list(range(1, 1601))


def test_a_client_that_asks_and_never_listens_is_not_heard_any_more(app: RunningApp) -> None:
    client = app.socket()
    client.socket.settimeout(1.0)
    question = client.protocol.send(Message(data='{"op":"ping","request_id":"%s"}' % ("x" * 50_000)))
    # A hundred megabytes do not fit into two kernels and the server's own buffer: sending blocks in the end.
    with pytest.raises(TimeoutError):
        client.socket.sendall(question * 2000)
    assert app.socket().ask(op="ping")["op"] == "pong"


def test_what_comes_at_once_is_heard_turn_by_turn(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much one client says in one breath: others are served in between, and order is kept."""
    monkeypatch.setattr(websocket_module, "TURN_S", 0.0)
    told: list[str] = []
    on_text = socket_module.Commands.on_text

    def hear(routes: Any, socket: Any, text: bytes) -> None:
        told.append("message")
        asyncio.get_running_loop().call_soon(told.append, "others")
        on_text(routes, socket, text)

    monkeypatch.setattr(socket_module.Commands, "on_text", hear)
    client = app.socket()
    asked = [client.protocol.send(Message(data=f'{{"op":"ping","request_id":{n}}}')) for n in range(2000)]
    client.socket.sendall(b"".join([*asked, client.protocol.send(CloseConnection(code=1000))]))
    assert [client.next("pong")["request_id"] for _ in asked] == list(range(2000))
    assert client.read() is None
    # One at a time; where a piece of input begins, one more.
    assert told.count("message") == 2000
    assert max(len(list(turn)) for what, turn in groupby(told) if what == "message") <= 2


def test_an_end_in_the_middle_of_much(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "TURN_S", 0.0)
    client = app.socket()
    client.socket.sendall(client.protocol.send(Message(data='{"op":"ping"}')) * 2000)
    client.next("pong")
    client.close()
    eventually(lambda: app.footprint()["slots"] == 0)
    assert app.socket().ask(op="ping")["op"] == "pong"


# --- is it there? -----------------------------------------------------------------------------------------


def test_a_silent_client_is_asked_and_has_to_answer(app: RunningApp, ws: SocketClient) -> None:
    (socket,) = app.inside(lambda: tuple(app.app.service.streams.open))
    for _ in range(2):
        app.inside(socket.beat)
        ping = ws.event()
        assert isinstance(ping, Ping)
        ws.send_event(ping.response())
        eventually(lambda: not app.inside(lambda: socket._pinged))
    assert ws.ask(op="ping")["op"] == "pong"
    app.inside(socket.beat)
    assert isinstance(ws.event(), Ping)
    app.inside(socket.beat)
    assert ws.socket.recv(1) == b""
    eventually(lambda: not app.app.service.streams.open)


def test_it_is_asked_without_being_told_to(app: RunningApp) -> None:
    app.app.service.streams.ping_s = 0.05
    client = app.socket()
    assert isinstance(client.event(), Ping)
    # Any answer would do. Without one, it ends.
    while client.socket.recv(4096):
        pass
    eventually(lambda: not app.app.service.streams.open)
    assert not len(app.app.service.streams.heartbeats)


def test_a_client_that_is_not_listened_to_is_not_asked(app: RunningApp, ws: SocketClient) -> None:
    (socket,) = app.inside(lambda: tuple(app.app.service.streams.open))
    app.inside(lambda: socket.set_aside(True))
    for _ in range(3):
        app.inside(socket.beat)
    app.inside(lambda: socket.set_aside(False))
    assert ws.ask(op="ping")["op"] == "pong"

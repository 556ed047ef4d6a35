"""WebSockets over HTTP/2: opened by CONNECT, beside other requests, and held to the same rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Message, TextMessage

from tests.http.http2.conftest import Speak
from tests.http.http2.speaking import Heard, Http2Client
from tests.http.streaming import RunningApp

OPENING = {":protocol": "websocket", "sec-websocket-version": "13"}


class Socket:
    def __init__(self, client: Http2Client, path: str = "/v0/ws", **headers: str) -> None:
        self.client = client
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        self.stream = client.ask("CONNECT", path, headers=OPENING | shown, end=False)
        self.heard: Heard = client.streams[self.stream]
        while not self.heard.headers:
            assert client.hear(), client.goaways
        self._protocol = Connection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        self._at = 0

    def send(self, event: Event) -> None:
        self.client.send(self.stream, self._protocol.send(event))

    def say(self, **message: Any) -> None:
        self.send(Message(data=json.dumps(message)))

    def event(self) -> Event:
        while not self._events:
            if self._at == len(self.heard.body):
                assert self.client.hear(), (self.heard, self.client.goaways)
            piece, self._at = self.heard.body[self._at :], len(self.heard.body)
            if piece:
                self._protocol.receive_data(piece)
                self._events += self._protocol.events()
        return self._events.pop(0)

    def message(self) -> Any:
        text = ""
        while True:
            event = self.event()
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                return json.loads(text)


def test_the_closing_handshake_ends_the_stream_and_nothing_else(app: RunningApp, speak: Speak) -> None:
    client = speak(app)
    socket = Socket(client)
    socket.send(CloseConnection(code=1000))
    assert isinstance(socket.event(), CloseConnection)
    assert client.answer(socket.stream).ended
    assert client.request("GET", "/v0/health").status == 200
    assert not client.goaways


@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_client_that_leaves_takes_its_subscriptions_along(
    app: RunningApp, speak: Speak, how: str, wait_until: Any
) -> None:
    client = speak(app)
    socket = Socket(client)
    socket.say(op="subscribe", topic="t", tail=True, lenient=True)
    socket.message()
    assert len(app.app.service.streams.open) == 1
    if how == "end":
        client.h2.end_stream(socket.stream)
    else:
        client.h2.reset_stream(socket.stream)
    client.flush()
    wait_until(lambda: not app.app.service.streams.open)
    assert client.request("GET", "/v0/health").status == 200


def test_what_is_no_socket_is_refused(app: RunningApp, speak: Speak) -> None:
    """A 2xx would mean that the other protocol is spoken."""
    client = speak(app)
    app.write("t", 1)
    for path, headers, status in (
        ("/v0/topics/t", {}, 405),
        ("/v0/nothing", {}, 404),
        ("/v0/ws", {":protocol": "connect-udp"}, 501),
        ("/v0/ws", {"sec-websocket-version": "12"}, 400),
        ("/v0/ws?colour=blue", {}, 400),
    ):
        answer = Socket(client, path, **headers).heard
        assert (path, answer.status) == (path, status)
        assert "error" in client.answer(next(k for k, v in client.streams.items() if v is answer)).json
    assert client.request("GET", "/v0/ws").status == 400
    assert not client.goaways


def test_a_socket_that_does_not_read_is_not_heard_and_holds_up_no_other(
    app: RunningApp, speak: Speak, wait_until: Any
) -> None:
    app.write("t", *("x" * 9000 for _ in range(400)))
    client = speak(app, reads=False)
    # All streams together may bring it much, and each of them little.
    client.h2.increment_flow_control_window(1 << 24)
    client.flush()
    deaf = Socket(client)
    deaf.say(op="subscribe", topic="t")
    held: Any = next(iter(app.app.service.streams.open))
    wait_until(lambda: held.stalled)
    # It may ask for a while; what it asks waits until it reads.
    for number in range(300):
        deaf.say(op="ping", request_id=str(number) * 100)
    other = Socket(client)
    other.say(op="ping", request_id="other")
    assert other.message()["request_id"] == "other"
    stream = held._held._channel
    assert len(stream._held_input) > 10_000
    # Reading again, it gets the records, and every answer.
    client._reads = True
    client.h2.increment_flow_control_window(1 << 24, deaf.stream)
    client.flush()
    pongs = 0
    while pongs < 300:
        pongs += deaf.message()["op"] == "pong"
    assert not stream._held_input
    assert stream._held_size == 0

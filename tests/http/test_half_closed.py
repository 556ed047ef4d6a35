"""Clients that end their side of the connection while answers are still owed to them."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.http.streaming import RunningApp
from tests.support import raw_request

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
FIRST = raw_request("POST", "/v0/topics/log", b'{"records":[{"data":1}]}')


@pytest.mark.parametrize("behind", [b"", b"GET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x81\x85garbage"])
@pytest.mark.parametrize(
    "last",
    [
        raw_request("GET", "/v0/ws", None, UPGRADE),
        raw_request("GET", "/v0/topics/jobs/work?node=n"),
    ],
    ids=["socket", "work"],
)
def test_nobody_opens_an_endless_stream_after_the_last_word(
    start: Callable[..., RunningApp], wait_until: Callable[..., None], last: bytes, behind: bytes
) -> None:
    app = start()
    app.call("PUT", "/v0/topics/jobs", {"type": "queue"})
    app.write("jobs", 1)
    wire = app.wire()
    # The write is answered in a later turn of the loop than the one that reads all of this.
    wire.send(FIRST + last + behind)
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.read().status == 201
    wire.file.read()
    wire.close()
    wait_until(lambda: app.app.server.context.open_connections == 0)
    assert app.app.service.streams.taken == 0
    # What it would have been given is free for others.
    assert app.call("POST", "/v0/topics/jobs/claim", {"node": "other"}).json["count"] == 1


def test_requests_before_garbage_are_answered(start: Callable[..., RunningApp]) -> None:
    wire = start().wire()
    wire.send(FIRST + b"\x00garbage")
    wire.socket.shutdown(socket.SHUT_WR)
    assert [wire.read().status, wire.read().status] == [201, 400]
    assert wire.at_end()


def test_a_long_answer_is_still_delivered(start: Callable[..., RunningApp]) -> None:
    app = start()
    app.write("log", *["x" * 1000] * 100)
    wire = app.wire()
    wire.send(raw_request("POST", "/v0/topics/log/scan") + raw_request("GET", "/v0/health"))
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.read().status == 200
    assert wire.read().json["status"] == "ok"
    assert wire.at_end()

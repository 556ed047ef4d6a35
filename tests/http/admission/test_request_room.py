"""Large bodies have room together, and each gives its room back however it ends."""

from __future__ import annotations

import gzip

import pytest
from wsproto.events import Message

from tests.http.streaming import RunningApp
from topics.core.errors import ApiError
from topics.http.admission.limits import LARGEST_BODIES, SMALL_BYTES, RequestRoom
from topics.http.routing import Body, Route

BODY = 100_000
HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_there_is_room_for_some_of_the_largest() -> None:
    room = RequestRoom(1000)
    assert room.max_bytes == LARGEST_BODIES * 1000 == 32_000
    for _ in range(32):
        room.take(1000)
    with pytest.raises(ApiError) as refused:
        room.take(1)
    assert refused.value.detail == {"limit": "max_request_bytes", "max": 32_000}
    room.give(1000)
    room.take(1000)


@pytest.fixture
def running(serve):
    """With room for two bodies of the size that is used here."""

    def echo(exchange):
        exchange.reply(b"%d" % len(exchange.body))

    running = serve([Route("POST", "/echo", echo, body=Body.REQUIRED)], max_body_bytes=1_000_000)
    running.server.context.request_room.max_bytes = 2 * BODY
    return running


def held(running) -> int:
    return running.server.context.request_room.held


def throttled(answer) -> None:
    assert (answer.status, answer.code) == (429, "throttled")
    assert answer.json["error"]["detail"] == {"limit": "max_request_bytes", "max": 2 * BODY}
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("chunked", [False, True])
def test_what_does_not_fit_any_more_is_refused_and_room_comes_back(running, wait_until, chunked):
    framing = b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % BODY if chunked else b""
    begin = HEAD + (framing or b"Content-Length: %d\r\n\r\n" % BODY)
    waiting = [running.connect() for _ in range(2)]
    for wire in waiting:
        wire.send(begin + b"1" * (BODY - 1))
    wait_until(lambda: held(running) == 2 * BODY - (2 if chunked else 0))
    third = running.connect()
    third.send(begin + b"1" * BODY)
    throttled(third.read())
    # Small ones are not counted.
    assert running.connect().request("POST", "/echo", b"1" * SMALL_BYTES).body == b"%d" % SMALL_BYTES
    waiting[0].send(b"1" + (b"\r\n0\r\n\r\n" if chunked else b""))
    assert waiting[0].read().body == b"%d" % BODY
    wait_until(lambda: held(running) <= BODY)
    assert running.connect().request("POST", "/echo", b"1" * BODY).body == b"%d" % BODY
    # A client that goes away in the middle gives its room back, too.
    waiting[1].close()
    wait_until(lambda: held(running) == 0)


def test_what_a_body_unfolds_to_counts(running, wait_until):
    packed = gzip.compress(b"1" * (2 * BODY + 1))
    wire = running.connect()
    throttled(wire.request("POST", "/echo", packed, {"Content-Encoding": "gzip"}))
    packed = gzip.compress(b"1" * BODY)
    answer = wire.request("POST", "/echo", packed, {"Content-Encoding": "gzip"})
    assert answer.body == b"%d" % BODY
    wait_until(lambda: held(running) == 0)


def test_refused_requests_hold_no_room(running, wait_until):
    wire = running.connect()
    assert wire.request("POST", "/nowhere", b"1" * BODY).status == 404
    wire = running.connect()
    assert wire.request("POST", "/echo", b"1" * BODY, {"Content-Type": "text/plain"}).status == 415
    wait_until(lambda: held(running) == 0)


def test_messages_of_sockets_count_like_bodies(app: RunningApp, wait_until) -> None:
    room = app.app.server.context.request_room
    room.max_bytes = BODY
    app.write("t", 1)
    client = app.socket()
    text = "x" * (2 * BODY)
    client.send(op="publish", topic="t", records=[{"data": text}])
    refusal = client.read()
    assert (refusal["op"], refusal["code"]) == ("error", "throttled")
    assert refusal["detail"] == {"limit": "max_request_bytes", "max": BODY}
    assert room.held == 0
    # The socket goes on, and so does what fits.
    assert client.ask(op="publish", topic="t", records=[{"data": "x" * 70_000}])["op"] == "ack"
    wait_until(lambda: room.held == 0)
    client.send_event(Message(data="x" * 80_000, message_finished=False))
    wait_until(lambda: room.held == 80_000)
    client.socket.close()
    wait_until(lambda: room.held == 0)

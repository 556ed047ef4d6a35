"""The rules of a connection: floods, mistakes, bounds, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import ContinuationFrame, HeadersFrame, PingFrame, PriorityFrame, SettingsFrame

from tests.http.http2.conftest import Speak
from tests.http.http2.speaking import Http2Client
from tests.http.running import Running
from topics.http import http2
from topics.http.context import Limits
from topics.http.exchange import Exchange
from topics.http.routing import Body, Route

Serve = Callable[..., Running]
Wait = Callable[..., None]
CALM = int(ErrorCodes.ENHANCE_YOUR_CALM)


@pytest.fixture
def parked() -> list[Exchange]:
    return []


@pytest.fixture
def running(serve: Serve, parked: list[Exchange]) -> Running:
    return serve(_routes(parked))


def _routes(parked: list[Exchange]) -> list[Route]:
    def echo(exchange: Exchange) -> None:
        exchange.reply(exchange.name.encode() + exchange.body)

    return [
        Route("GET", "/now/:n", echo),
        Route("POST", "/now/:n", echo, body=Body.REQUIRED),
        Route("GET", "/later/:n", parked.append),
    ]


def flood(client: Http2Client, data: bytes) -> list[tuple[int, int]]:
    """All of it, while what comes back is read."""

    def send() -> None:
        try:
            client.raw(data)
        except OSError:
            return  # it was cut off, as it should be

    sender = threading.Thread(target=send)
    sender.start()
    ended = client.until_over()
    sender.join()
    return ended


# --- mistakes -------------------------------------------------------------------------------------------


def test_the_preface_may_come_byte_by_byte(running: Running) -> None:
    wire = running.connect()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()
    for byte in preface + PingFrame(0, opaque_data=b"12345678").serialize():
        wire.send(bytes([byte]))
    # Settings, a window, two acknowledgements.
    heard = wire.file.read(9)
    assert heard[3] == SettingsFrame.type


@pytest.mark.parametrize(
    "data", [b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + bytes(40), b"PRI * HTTP/2.0\r\nHost: x\r\n\r\n"]
)
def test_what_only_begins_like_it_is_ended(running: Running, data: bytes) -> None:
    wire = running.connect()
    wire.send(data)
    assert b'"records"' not in wire.file.read()


def test_behind_a_request_of_http1_it_is_none(running: Running, raw: Any) -> None:
    wire = running.connect()
    wire.send(raw("GET", "/now/1") + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize())
    assert wire.read().body == b"1"
    assert wire.read().status == 400
    # Nor when it comes by itself.
    wire = running.connect()
    wire.send(raw("GET", "/now/1"))
    assert wire.read().body == b"1"
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize())
    assert wire.read().status == 400


def test_a_frame_against_the_rules_ends_the_connection_and_says_why(running: Running, speak: Speak) -> None:
    client = speak(running)
    assert client.request("GET", "/now/1").body == b"1"
    # A frame that is larger than was agreed on.
    client.raw(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(20_000))
    assert client.until_over() == [(int(ErrorCodes.FRAME_SIZE_ERROR), 1)]


@pytest.mark.parametrize(
    "headers",
    [
        {"Upper": "case"},
        {"connection": "close"},
        {"transfer-encoding": "chunked"},
        {"x": "a\r\ny: b"},
        {"x": "a\x00b"},
        {":unknown": "x"},
    ],
)
def test_headers_that_would_be_smuggled_end_the_connection(
    running: Running, speak: Speak, headers: dict[str, str]
) -> None:
    client = speak(running)
    client.ask("GET", "/now/1", None, headers)
    assert client.until_over()[0][0] == int(ErrorCodes.PROTOCOL_ERROR)


def test_a_body_of_another_length_than_announced_ends_the_connection(running: Running, speak: Speak) -> None:
    client = speak(running)
    client.ask("POST", "/now/1", b"12", {"content-length": "3"})
    assert client.until_over()[0][0] == int(ErrorCodes.PROTOCOL_ERROR)


# --- bounds ---------------------------------------------------------------------------------------------


def test_a_head_has_a_largest_size(serve: Serve, speak: Speak) -> None:
    client = speak(serve(_routes([]), limits=Limits(head_bytes=5000)))
    assert client.request("GET", "/now/1", None, {"x": "y" * 4000}).body == b"1"
    client.ask("GET", "/now/1", None, {"x": "y" * 6000})
    assert client.until_over()[0][0] == CALM


def test_so_many_requests_at_a_time(
    running: Running, parked: list[Exchange], speak: Speak, wait_until: Wait
) -> None:
    client = speak(running)
    assert client.request("GET", "/now/1").status == 200
    assert client.h2.remote_settings.max_concurrent_streams == http2.MOST_STREAMS
    for n in range(http2.MOST_STREAMS):
        client.ask("GET", f"/later/{n}")
    wait_until(lambda: len(parked) == http2.MOST_STREAMS)
    one_more = HeadersFrame(1001, client.h2.encoder.encode([(":method", "GET")]), flags=["END_HEADERS"])
    client.raw(one_more.serialize())
    assert client.until_over()
    wait_until(lambda: all(exchange.closed for exchange in parked))


@pytest.mark.parametrize(
    "frame",
    [
        PingFrame(0, opaque_data=b"12345678"),
        SettingsFrame(0),
        PriorityFrame(1, depends_on=0, stream_weight=1),
    ],
)
def test_a_flood_of_frames_that_ask_for_nothing_is_ended(running: Running, speak: Speak, frame: Any) -> None:
    client = speak(running)
    assert flood(client, frame.serialize() * 20_000) == [(CALM, 0)]


def test_empty_pieces_of_a_body_are_a_flood_as_well(running: Running, speak: Speak) -> None:
    client = speak(running)
    stream = client.ask("POST", "/now/1", b"1", end=False)
    empty = b"\x00\x00\x00\x00\x00" + stream.to_bytes(4, "big")
    assert flood(client, empty * 20_000) == [(CALM, stream)]


def test_requests_that_are_taken_back_at_once_are_a_flood(
    running: Running, parked: list[Exchange], speak: Speak
) -> None:
    client = speak(running)
    for _ in range(500):
        stream = client.ask("GET", "/later/1", flush=False)
        client.h2.reset_stream(stream)
    assert flood(client, client.h2.data_to_send())[0][0] == CALM
    # And none of them was begun.
    assert len(parked) < 50


def test_a_head_in_endless_pieces_is_ended(running: Running, speak: Speak) -> None:
    client = speak(running)
    begin = HeadersFrame(1, client.h2.encoder.encode([(":method", "GET")]))
    assert flood(client, begin.serialize() + ContinuationFrame(1, b"").serialize() * 10_000)


def test_those_who_ask_may_also_take_back(running: Running, parked: list[Exchange], speak: Speak) -> None:
    client = speak(running)
    for _ in range(300):
        assert client.request("GET", "/now/1").body == b"1"
        client.h2.reset_stream(client.ask("GET", "/later/1"))
        client.flush()
    assert client.request("GET", "/now/1").body == b"1"


# --- its end --------------------------------------------------------------------------------------------


def test_an_idle_connection_is_ended_with_a_word(serve: Serve, speak: Speak) -> None:
    client = speak(serve(_routes([]), limits=Limits(keep_alive_s=0.2, sweep_s=0.05)))
    assert client.request("GET", "/now/1").status == 200
    assert client.until_over() == [(0, 1)]


def test_one_that_says_nothing_is_cut_off(serve: Serve) -> None:
    running = serve(_routes([]), limits=Limits(head_s=0.2, sweep_s=0.05))
    wire = running.connect()
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    wire.file.read()


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
def test_a_stop_tells_clients_and_answers_what_they_asked(
    serve: Serve,
    parked: list[Exchange],
    speak: Speak,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
    grace_s: float,
) -> None:
    monkeypatch.setattr(http2, "GRACE_S", grace_s)
    running = serve(_routes(parked))
    running.server._drain_s = 30.0
    client, idle = speak(running), speak(running)
    client.ask("GET", "/later/1")
    assert idle.request("GET", "/now/1").status == 200
    wait_until(lambda: len(parked) == 1)
    running.begin_stop()
    assert idle.until_over() == [(0, 1)]
    no_more = b"\x07" + bytes(5) + (2**31 - 1).to_bytes(4)
    data = b""
    if not grace_s:
        while no_more not in data:
            data += client.sock.recv(65536)
    running.loop.call_soon_threadsafe(parked[0].reply, b"late")
    while piece := client.sock.recv(65536):
        data += piece
    # For h2, nothing may come behind a GOAWAY, so this is looked at by hand: the answer, and the last word.
    assert (no_more in data) == (not grace_s)
    assert data.index(b"late") < data.rindex(b"\x07" + bytes(5) + (1).to_bytes(4))


def test_a_client_that_leaves_lets_go_of_everything(
    running: Running, parked: list[Exchange], speak: Speak, wait_until: Wait
) -> None:
    client = speak(running)
    client.ask("GET", "/later/1")
    wait_until(lambda: len(parked) == 1)
    client.h2.close_connection()
    client.flush()
    wait_until(lambda: parked[0].closed)
    client.until_over()
    wait_until(lambda: not running.server.context.connections)

import socket
import struct
import sys

import pytest

from topics.http.routing import Body, Route


def echo(exchange):
    exchange.reply(exchange.body or exchange.name.encode())


ROUTES = [
    Route(method="POST", template="/echo", handler=echo, body=Body.REQUIRED),
    Route(method="GET", template="/name/:topic", handler=echo),
    Route(method="GET", template="/v0/ws", handler=echo, websocket=True),
]
# A head without what says how its body ends.
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture
def running(serve):
    return serve(ROUTES, max_body_bytes=1 << 20)


@pytest.fixture
def wire(running):
    return running.connect()


def test_http_1_0(running):
    wire = running.connect()
    wire.send(b"GET /name/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert wire.read().headers["connection"] == "keep-alive"
    wire.send(b"GET /name/b HTTP/1.0\r\n\r\n")
    answer = wire.read()
    assert (answer.body, answer.headers["connection"]) == (b"b", "close")
    assert wire.at_end()


def test_chunked_bodies(wire):
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    wire.send(head + b"3\r\n[1,\r\n2;ext=1\r\n2]\r\n0\r\n\r\n")
    assert wire.read().body == b"[1,2]"


def test_tiny_chunks_take_no_more_memory_than_their_bytes(serve, wait_until):
    running = serve([Route(method="POST", template="/", handler=lambda exchange: None, body=Body.REQUIRED)])
    wire = running.connect()
    wire.send(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    )
    wire.send(b"2\r\nab\r\n" * 50_000)

    def held():
        return [link._reading for link in running.server.context.connections if link._reading is not None]

    wait_until(lambda: [exchange.received for exchange in held()] == [100_000])
    assert sys.getsizeof(held()[0]._pieces) < 200_000


def test_trailers_do_not_become_headers_of_the_next_request(serve):
    wire = serve(ROUTES, keys="k").connect()
    wire.send(
        POST + b"Transfer-Encoding: chunked\r\n"
        b"Authorization: Bearer k\r\n\r\n1\r\n1\r\n0\r\nAuthorization: Bearer k\r\nX: y\r\n\r\n"
    )
    assert wire.read().body == b"1"
    assert wire.request("GET", "/name/a").status == 401


def test_a_long_target_is_refused(wire):
    assert wire.request("GET", "/name/" + "a" * 16_000).status == 200
    answer = wire.request("GET", "/name/" + "a" * 40_000)
    assert (answer.status, answer.code) == (414, "invalid_request")
    assert wire.at_end()


def test_endless_trailers_are_refused(wire):
    wire.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nX: " + b"y" * 200_000)
    assert wire.read().status == 431


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_all_before_reading_still_gets_its_413(wire, chunked):
    size = 30 << 20
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % size
    else:
        framing = b"Content-Length: %d\r\n\r\n" % size
    wire.send(POST + framing)
    piece = bytes(1 << 20)
    for _ in range(30):
        wire.send(piece)
    answer = wire.read()
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert wire.at_end()


def test_exactly_the_ceiling_is_allowed(wire):
    body = b"1" * (1 << 20)
    assert wire.request("POST", "/echo", body).body == body
    assert wire.request("POST", "/echo", body + b"1").status == 413


def test_a_small_refused_body_leaves_the_connection_usable(serve, raw):
    wire = serve(ROUTES, keys="k").connect()
    request = raw("POST", "/echo", b"x" * 1000)
    wire.send(request[:-500])
    assert wire.read().status == 401
    wire.send(request[-500:])
    assert wire.request("GET", "/name/a", headers={"Authorization": "Bearer k"}).status == 200


def test_expect_continue(serve):
    running = serve(ROUTES, keys="k")
    head = POST + b"Content-Length: 2\r\nExpect: 100-continue\r\nAuthorization: Bearer "
    wire = running.connect()
    wire.send(head + b"k\r\n\r\n")
    assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert wire.file.readline() == b"\r\n"
    wire.send(b"{}")
    assert wire.read().body == b"{}"
    wire = running.connect()
    wire.send(head + b"wrong\r\n\r\n")
    assert wire.read().status == 401
    assert wire.at_end()


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_an_upgrade_nobody_asked_us_for_is_ignored(wire, raw, upgrade):
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": upgrade, "HTTP2-Settings": "AAMAAABk"}
    wire.send(raw("POST", "/echo", b'{"a":1}', headers) + raw("GET", "/name/after"))
    assert wire.read().body == b'{"a":1}'
    assert wire.read().body == b"after"
    assert wire.request("GET", "/name/x", headers=headers).body == b"x"
    assert wire.request("POST", "/echo", b"[" + b"1," * 30_000 + b"1]", headers).status == 200
    assert wire.request("GET", "/name/y").body == b"y"


def test_clients_that_reset_leave_nothing_behind(running, raw, wait_until):
    for data in (
        b"",
        b"GE",
        b"GET /name/a HT",
        raw("POST", "/echo", b"x" * 100)[:-50],
        raw("GET", "/name/a"),
    ):
        wire = running.connect()
        wire.send(data)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
    wait_until(lambda: not running.server.context.connections)

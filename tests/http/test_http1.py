import socket
import struct
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_keep_alive_and_close(wire, raw):
    for _ in range(3):
        assert "connection" not in wire.request("GET", "/name/a").headers
    answer = wire.request("GET", "/name/a", headers={"Connection": "close"})
    assert answer.headers["connection"] == "close"
    assert wire.at_end()


def test_http_1_0(running):
    wire = running.connect()
    wire.send(b"GET /name/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert wire.read().headers["connection"] == "keep-alive"
    wire.send(b"GET /name/b HTTP/1.0\r\n\r\n")
    answer = wire.read()
    assert (answer.body, answer.headers["connection"]) == (b"b", "close")
    assert wire.at_end()


def test_one_byte_at_a_time(wire, raw):
    for byte in raw("POST", "/echo", b"[1]"):
        wire.send(bytes([byte]))
    assert wire.read().body == b"[1]"


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


def test_repeated_headers_are_joined(serve):
    def show(exchange):
        exchange.reply(exchange.header(b"accept"))

    wire = serve([Route(method="GET", template="/", handler=show)]).connect()
    wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nACCEPT: a\r\naccept: b\r\n\r\n")
    assert wire.read().body == b"a, b"


@pytest.mark.parametrize(
    "data",
    [
        b"NOT HTTP AT ALL\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /name/a HTTP/9.9\r\n\r\n",
        b"GET /name/a HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
        b"GET /name/a HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"GET /name/a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /name/a\x00b HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_malformed_requests_get_400_and_the_end(wire, data):
    wire.send(data)
    answer = wire.read()
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.headers["connection"] == "close"
    assert wire.at_end()


@pytest.mark.parametrize("method", ["BREW", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_not_allowed(wire, method):
    for _ in range(2):
        answer = wire.request(method, "/name/a")
        assert (answer.status, answer.code, answer.headers["allow"]) == (
            405,
            "method_not_allowed",
            "GET, HEAD",
        )
    assert wire.request(method, "/nowhere").status == 404
    assert wire.request("GET", "/name/a").status == 200


def test_a_long_target_is_refused(wire):
    assert wire.request("GET", "/name/" + "a" * 16_000).status == 200
    answer = wire.request("GET", "/name/" + "a" * 40_000)
    assert (answer.status, answer.code) == (414, "invalid_request")
    assert wire.at_end()


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""])
def test_long_headers_are_refused(wire, end):
    assert wire.request("GET", "/name/a", headers={"X": "y" * 60_000}).status == 200
    wire.send(b"GET /name/a HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + end)
    answer = wire.read()
    assert (answer.status, answer.code) == (431, "invalid_request")
    assert wire.at_end()


def test_endless_trailers_are_refused(wire):
    wire.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nX: " + b"y" * 200_000)
    assert wire.read().status == 431


def test_an_announced_body_too_large_is_refused_before_it_is_read(wire):
    wire.send(POST + b"Content-Length: 99999999999\r\n\r\n")
    answer = wire.read()
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert answer.headers["connection"] == "close"
    assert wire.at_end()


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


def test_many_connections_at_once(running):
    def talk(number):
        with_answers = running.connect()
        for turn in range(50):
            body = b"[%d]" % (number * 1000 + turn)
            assert with_answers.request("POST", "/echo", body).body == body
        results.append(number)

    results = []
    threads = [threading.Thread(target=talk, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(20))


def test_any_bytes_are_survived(running, caplog):
    """Whatever arrives, the server answers or closes, and goes on serving others."""
    lines = st.sampled_from(
        [
            b"GET /name/a HTTP/1.1\r\nHost: x\r\n",
            b"POST /echo HTTP/1.1\r\nHost: x\r\n",
            b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n",
            b"FOO / HTTP/1.1\r\nHost: x\r\n",
            b"Content-Type: application/json\r\n",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Connection: Upgrade\r\n",
            b"Upgrade: websocket\r\n",
            b"Expect: 100-continue\r\n",
            b"1\r\n",
            b"0\r\n",
            b"\r\n",
            b"abc",
            b"\x00\xff",
        ]
    )

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.one_of(lines, st.binary(max_size=20)), max_size=25), st.integers(1, 40))
    def feed(parts, cut):
        wire = running.connect()
        data = b"".join(parts)
        try:
            wire.send(data[:cut])
            wire.send(data[cut:])
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.socket.recv(65536):
                pass
        except OSError:
            pass
        wire.close()

    feed()
    assert not caplog.records
    assert running.request("GET", "/name/a").body == b"a"

"""What the parser lets pass, and what we make of it."""

import pytest

from topics.http.request_parser import Chunks, RequestParser, begins_well, has_two_blanks, host_of, is_chunked
from topics.http.routing import Route


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost",
        b"GET / HTTP/1.0\r\n",
        # Not complete yet.
        b"",
        b"G",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r",
        # Behind empty lines.
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b"\r\n\r",
        b"\r\nGE",
        b"\r\n\r\nGET / HTTP/1.1\r\n",
    ],
)
def test_what_a_request_may_begin_with(data):
    assert begins_well(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\n",
        b"\r\nGET /\r\n",
        b"GET / HTTP/2.0\r\n",
        b"GET / HTTP/0.9\r\n",
        b"GET / http/1.1\r\n",
        b"GET / RTSP/1.0\r\n",
        b"GET / HTTP/1.1\nHost",
        b"GET / HTTP/1.1\nHost: x\r\n",
        b"\n",
        b"\nGET / HTTP/1.1\r\n",
        b"\r\n\n",
        b"\r\n\nGET / HTTP/1.1\r\n",
        b"\rGET / HTTP/1.1\r\n",
        b"\rX",
        b"\r\n\rX",
        b" GET / HTTP/1.1\r\n",
        b"\tGET / HTTP/1.1\r\n",
        b"X\r\n",
    ],
)
def test_what_it_may_not(data):
    assert not begins_well(data)


@pytest.mark.parametrize(
    ("data", "is_sound"),
    [
        (b"GET / HTTP/1.1\r\nA: b  c\r\n", True),
        (b"\r\n\r\nGET / HTTP/1.1\r\n", True),
        (b"GET  / HTTP/1.1\r\n", False),
        (b"GET /  HTTP/1.1\r\n", False),
        (b"\r\nGET /a b HTTP/1.1\r\n", False),
    ],
)
def test_its_line_has_three_parts(data, is_sound):
    assert has_two_blanks(data) is is_sound


@pytest.mark.parametrize("line", [b"GET  /now/1 HTTP/1.1\r\n", b"GET /now/1  HTTP/1.1\r\n"])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_line_with_more_blanks_is_refused(serve, raw, line, step):
    running = serve([Route("GET", "/now/:n", lambda exchange: exchange.reply(b"{}"))])
    wire = running.connect()
    for data, status in ((b"GET /now/1 HTTP/1.1\r\n", 200), (line, 400)):
        data += b"Host: localhost\r\n\r\n"
        for at in range(0, len(data), step):
            wire.send(data[at : at + step])
        assert wire.read().status == status
    assert wire.at_end()


@pytest.mark.parametrize(
    ("target", "header", "host"),
    [
        (b"/", b"x", b"x"),
        (b"/", b"x:80 \t", b"x:80"),
        (b"/", b"[::1]:80", b"[::1]:80"),
        (b"/", b"my_service.a-b.c", b"my_service.a-b.c"),
        (b"/", b"", b""),
        (b"/", None, None),
        (b"/", b"x, x", None),
        (b"/", b"x y", None),
        (b"/", b"x/y", None),
        (b"/", b"u@x", None),
        (b"/", b"x:y", None),
        (b"/", b"x\xff", None),
        (b"/?a=b://c", b"x", b"x"),
        (b"*", b"x", b"x"),
        (b"http://y/z", b"x", b"y"),
        (b"http://y:1?z", b"x", b"y:1"),
        (b"http://y#z", b"x", b"y"),
        (b"http://y", b"x", b"y"),
        (b"http://y/", None, None),
        (b"http://y/", b"x y", None),
        (b"http:///z", b"x", None),
        (b"http://u@y/z", b"x", None),
    ],
)
def test_the_host_that_is_asked(target, header, host):
    assert host_of(target, {} if header is None else {b"host": header}) == host


@pytest.mark.parametrize(
    ("value", "chunked"),
    [
        (b"chunked", True),
        (b"ChunKed ", True),
        (b"chunked\t", False),
        (b"chunked, chunked", False),
        (b"gzip, chunked", False),
        (b"identity", False),
        (b"", False),
    ],
)
def test_chunks(value, chunked):
    assert is_chunked({b"transfer-encoding": value}) == chunked


@pytest.mark.parametrize(
    ("head", "host"),
    [
        (b"GET / HTTP/1.1\r\nHost: a:1\r\n\r\n", b"a:1"),
        (b"GET / HTTP/1.1\r\nHost:  a:1  \r\n\r\n", b"a:1"),
        (b"GET http://b/ HTTP/1.1\r\nHost: a:1\r\n\r\n", b"b"),
        (b"GET / HTTP/1.1\r\nHost: c\r\n\r\n", b"c"),
    ],
)
def test_handlers_see_the_host_that_is_asked(serve, head, host):
    asked = []

    def handler(exchange):
        asked.append(exchange.headers.get(b"host"))
        exchange.reply(b"{}")

    wire = serve([Route("GET", "/", handler)]).connect()
    for data in (head, b"GET / HTTP/1.1\r\nHost: between\r\n\r\n", head, head):
        wire.send(data)
        assert wire.read().status == 200
    assert asked == [host, b"between", host, host]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"\r\n", b"GET"),
        (b"\r", b"\nGET"),
        (b"\r", b"\n", b"GET"),
        (b"\r\n\r", b"\n\r\nGET"),
        (b"\r\n\r\nG", b"ET"),
    ],
)
def test_empty_lines_in_pieces(serve, wait_until, monkeypatch, pieces):
    """Ahead of the first request, and between two of them."""
    fed = []
    feed = RequestParser.feed

    def noted(parser, data, at):
        stop = feed(parser, data, at)
        fed.append(data)
        return stop

    monkeypatch.setattr(RequestParser, "feed", noted)
    wire = serve([Route("GET", "/", lambda exchange: exchange.reply(b"{}"))]).connect()
    for _ in range(2):
        for piece in pieces:
            arrived = len(fed)
            wire.send(piece)
            # Each has to arrive by itself.
            wait_until(lambda arrived=arrived: len(fed) > arrived)
        wire.send(b" / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.read().status == 200


def test_a_body_that_ends_like_half_an_empty_line(serve):
    wire = serve([Route("POST", "/", lambda exchange: exchange.reply(b"{}"))]).connect()
    for _ in range(3):
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n"
        wire.send(head + b"{}\r")
        assert wire.read().status == 200


CHUNKED = b"2;a=b\r\n{}\r\n00a\r\n0\r\n\r\n0\r\n\r\n\r\n0;e\r\nX: y\r\n\r\n"


@pytest.mark.parametrize("body", [CHUNKED, b"0\r\n\r\n", b"3\r\n\r\n\r\r\n0\r\n\r\n"])
def test_where_chunks_end_however_they_are_cut(body):
    behind = b"GET / HTTP/1.1\r\n\r\n"
    for cut in range(len(body)):
        chunks = Chunks()
        assert chunks.end_in(body[:cut]) == cut
        assert chunks.end_in(body[cut:] + behind) == len(body) - cut
    chunks = Chunks()
    assert all(chunks.end_in(body[at : at + 1]) == 1 for at in range(len(body) - 1))
    assert chunks.end_in(body[-1:] + behind) == 1


@pytest.mark.parametrize("body", [b"x\r\n", b"\r\n", b"-1\r\n"])
def test_what_is_no_chunk_has_no_end(body):
    assert Chunks().end_in(body + b"GET / HTTP/1.1\r\n\r\n") == len(body) + 18

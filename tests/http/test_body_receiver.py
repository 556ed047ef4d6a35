import gc
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.core import ApiError
from topics.http import connection as connection_module
from topics.http.context import Limits
from topics.http.exchange import Exchange
from topics.http.reading import LEAST_BYTES, BodyReceiver
from topics.http.request_parser import RequestParser
from topics.http.routing import Body, Route

# Of which each byte tells its place, for a while.
LARGE = bytes(n % 251 for n in range(5 * LEAST_BYTES))
BEGUN = 100


def echo(exchange):
    exchange.reply(exchange.body or exchange.name.encode())


ROUTES = [
    Route(method="POST", template="/echo", handler=echo, body=Body.REQUIRED),
    Route(method="GET", template="/name/:topic", handler=echo),
]


@pytest.fixture
def running(serve):
    return serve(ROUTES)


@pytest.fixture
def wire(running):
    return running.connect()


def links(running):
    return list(running.server.context.connections)


def is_received(running):
    return [isinstance(link._transport.get_protocol(), BodyReceiver) for link in links(running)]


@pytest.fixture
def begin(running, raw, wait_until):
    """`begin(wire)` sends the beginning of a large request, and returns the rest of it."""

    def begin(wire, body=LARGE, headers=None):
        request = raw("POST", "/echo", body, headers)
        start = request.index(b"\r\n\r\n") + 4 + BEGUN
        wire.send(request[:start])
        wait_until(lambda: [link._reading is not None for link in links(running)] == [True])
        return request[start:]

    return begin


def test_the_rest_comes_past_the_parser_and_the_next_request_does_not(
    running, raw, begin, wait_until, monkeypatch
):
    parsed, usual = [], RequestParser.on_body

    def on_body(self, piece):
        parsed.append(len(piece))
        usual(self, piece)

    # httptools looks it up once, when the connection is made.
    monkeypatch.setattr(RequestParser, "on_body", on_body)
    wire = running.connect()
    for _ in range(3):
        rest = begin(wire)
        wait_until(lambda: is_received(running) == [True])
        wire.send(rest + raw("GET", "/name/next"))
        assert wire.read().body == LARGE
        assert wire.read().body == b"next"
        assert is_received(running) == [False]
    assert sum(parsed) == 3 * BEGUN


def test_bodies_arrive_whole_wherever_they_are_cut(running, raw):
    """Of any length, and one behind the other: what comes behind a body is none of it."""

    @given(st.lists(st.integers(0, 3 * LEAST_BYTES), min_size=1, max_size=4), st.data())
    @settings(deadline=None, max_examples=40)
    def check(lengths, data):
        bodies = [b"[" + LARGE[:length] for length in lengths]
        sent = b"".join(raw("POST", "/echo", body) for body in bodies)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
        wire = running.connect()
        for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            wire.send(sent[start:stop])
        assert [wire.read().body for _ in bodies] == bodies
        wire.close()

    check()


def test_a_body_stays_where_it_was_received(serve, raw, wait_until):
    """In the memory that the socket was read into: it is not copied from there."""
    places = []

    def note(exchange):
        places.append(place_of(exchange.body))
        exchange.reply(b"")

    running = serve([Route(method="POST", template="/", handler=note, body=Body.REQUIRED)])
    wire, request = running.connect(), raw("POST", "/", LARGE)
    wire.send(request[:1000])
    wait_until(lambda: is_received(running) == [True])
    (link,) = links(running)
    received = place_of(link._transport.get_protocol()._room)
    wire.send(request[1000:])
    assert wire.read().status == 200
    assert places == [received]


def place_of(buffer):
    return np.frombuffer(buffer, np.uint8).ctypes.data


def test_whoever_goes_with_the_last_byte_is_not_handled(running, wire, begin, wait_until, monkeypatch):
    """Between the last byte and the handler there is a turn of the loop, in which anything may happen."""
    finish, finished, handled = BodyReceiver._finish, threading.Event(), []

    def finish_late(self):
        finish(self)
        finished.set()

    def lost_first(self):
        self._connection._transport.abort()
        running.loop.call_later(0.1, finish_late, self)

    monkeypatch.setattr(BodyReceiver, "_finish", lost_first)
    monkeypatch.setattr(connection_module, "handle", lambda context, exchange: handled.append(exchange))
    rest = begin(wire)
    (link,) = links(running)
    wire.send(rest)
    wait_until(finished.is_set)
    assert (links(running), handled, link._parser) == ([], [], None)
    assert running.server.context.request_room.held == 0


def test_no_body_stays_with_its_connection(running, wire, begin):
    wire.send(begin(wire))
    assert wire.read().body == LARGE
    receivers = [found for found in gc.get_objects() if isinstance(found, BodyReceiver)]
    assert [(found._exchange, len(found._room)) for found in receivers] == [(None, 0)] * len(receivers)


@pytest.mark.parametrize(("rest_bytes", "is_worth_it"), [(LEAST_BYTES - 1, False), (LEAST_BYTES, True)])
def test_a_small_rest_is_not_worth_it(running, wire, begin, wait_until, rest_bytes, is_worth_it):
    body = LARGE[: BEGUN + rest_bytes]
    rest = begin(wire, body)
    wait_until(lambda: is_received(running) == [is_worth_it])
    wire.send(rest)
    assert wire.read().body == body


def test_the_last_request_is_left_to_the_parser(running, wire, begin):
    rest = begin(wire, headers={"Connection": "close"})
    assert is_received(running) == [False]
    wire.send(rest)
    answer = wire.read()
    assert (answer.body, answer.headers["connection"]) == (LARGE, "close")
    assert wire.at_end()


def test_chunks_are_left_to_the_parser(running, wire, wait_until):
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(LARGE)
    wire.send(head + chunked + LARGE[:BEGUN])
    wait_until(lambda: [link._reading is not None for link in links(running)] == [True])
    assert is_received(running) == [False]
    wire.send(LARGE[BEGUN:] + b"\r\n0\r\n\r\n")
    assert wire.read().body == LARGE


def test_without_memory_for_all_of_it_what_comes_is_taken(running, wire, begin, monkeypatch):
    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr(Exchange, "receive_into", none_left)
    rest = begin(wire)
    assert is_received(running) == [False]
    wire.send(rest)
    assert wire.read().body == LARGE


def test_whoever_goes_in_the_middle_leaves_nothing_behind(running, wire, begin, wait_until):
    room = running.server.context.request_room
    begin(wire)
    wait_until(lambda: is_received(running) == [True])
    assert room.held == len(LARGE)
    wire.close()
    wait_until(lambda: links(running) == [])
    assert room.held == 0


def test_whoever_ends_its_side_in_the_middle_is_let_go(running, wire, begin, wait_until):
    begin(wire)
    wait_until(lambda: is_received(running) == [True])
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.at_end()
    wait_until(lambda: links(running) == [])


def test_a_body_that_does_not_go_on_is_given_up(serve, raw, wait_until):
    running = serve(ROUTES, limits=Limits(body_idle_s=0.2, sweep_s=0.05))
    wire = running.connect()
    wire.send(raw("POST", "/echo", LARGE)[:-LEAST_BYTES])
    wait_until(lambda: is_received(running) == [True])
    assert wire.at_end()


def test_a_body_that_goes_on_is_waited_for(serve, raw):
    running = serve(ROUTES, limits=Limits(body_idle_s=0.3, sweep_s=0.02))
    wire, request = running.connect(), raw("POST", "/echo", LARGE)
    wire.send(request[: -8 * 8192])
    for step in range(-8, 0):
        time.sleep(0.1)
        wire.send(request[step * 8192 : (step + 1) * 8192 or None])
    assert wire.read().body == LARGE


def test_refused_in_the_middle_it_is_read_no_more(running, wire, begin, wait_until):
    """What is left is passed over, so that the client gets to read why."""
    rest = begin(wire)
    wait_until(lambda: is_received(running) == [True])
    (link,) = links(running)
    exchange = link._reading
    exchange.close_after_reply()
    running.loop.call_soon_threadsafe(exchange.fail, ApiError("shutting_down", "no more"))
    assert wire.read().status == 503
    wire.send(rest)
    wait_until(lambda: is_received(running) == [False])
    wait_until(lambda: link._read_control._discarded == len(rest))
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.at_end()

import gc
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.core import ApiError
from topics.http.context import Limits
from topics.http.reading import LEAST_BYTES, BodyReceiver
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


def test_no_body_stays_with_its_connection(running, wire, begin):
    wire.send(begin(wire))
    assert wire.read().body == LARGE
    receivers = [found for found in gc.get_objects() if isinstance(found, BodyReceiver)]
    assert [(found._exchange, len(found._room)) for found in receivers] == [(None, 0)] * len(receivers)


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

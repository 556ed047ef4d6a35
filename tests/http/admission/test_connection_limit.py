"""As many connections as there are places, and a plain answer to the next one."""

from __future__ import annotations

import logging
import resource
import time

import pytest

from topics.core.settings import Settings
from topics.http.admission.limits import (
    ConnectionLimit,
    left_for_segments,
    most_connections,
)
from topics.http.context import Limits
from topics.http.routing import Route


def start(serve, most, parked=None, **limits):
    routes = [
        Route(method="GET", template="/", handler=lambda exchange: exchange.reply(b"{}")),
        Route(method="GET", template="/park", handler=(parked if parked is not None else []).append),
    ]
    return serve(routes, limits=Limits(**{"sweep_s": 0.02, **limits}), max_connections=most)


def test_one_more_than_allowed_is_told_so_and_closed(serve, wait_until):
    running = start(serve, 3)
    wires = [running.connect() for _ in range(3)]
    assert [wire.request("GET", "/").status for wire in wires] == [200] * 3
    refused = running.connect()
    answer = refused.read()
    assert (answer.status, answer.code) == (429, "throttled")
    assert answer.json["error"]["detail"] == {"limit": "max_connections", "max": 3}
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["connection"] == "close"
    assert refused.at_end()
    # Those who are in notice nothing, and a place that is given back can be taken again.
    assert [wire.request("GET", "/").status for wire in wires] == [200] * 3
    wires[0].close()
    wait_until(lambda: len(running.server.context.connections) == 2)
    assert running.connect().request("GET", "/").status == 200
    assert running.server.context.connection_limit.turned_away == 1


def test_streams_take_places_too(serve, wait_until):
    def open_stream(exchange):
        exchange.open_stream(b"text/plain").write(b"x")

    routes = [Route(method="GET", template="/", handler=open_stream)]
    running = serve(routes, max_connections=2)
    for _ in range(2):
        running.connect().send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: len(running.server.context.streams) == 2)
    assert running.connect().read().status == 429


def test_when_it_gets_crowded_idle_connections_go_first(serve, raw, wait_until):
    parked = []
    running = start(serve, 4, parked, crowded_idle_s=0.2)
    working = running.connect()
    working.send(raw("GET", "/park"))
    wait_until(lambda: bool(parked))
    idle = [running.connect() for _ in range(2)]
    assert [wire.request("GET", "/").status for wire in idle] == [200, 200]
    time.sleep(0.4)
    assert len(running.server.context.connections) == 3
    last = running.connect()
    assert last.request("GET", "/").status == 200
    assert all(wire.at_end() for wire in idle)
    # There is room again.
    assert last.request("GET", "/").status == 200
    running.loop.call_soon_threadsafe(parked[0].reply, b"{}")
    assert working.read().status == 200


def test_the_operating_system_has_the_last_word():
    assert most_connections(20_000, 100_000) == 20_000
    assert most_connections(20_000, 20_000) == 19_744
    assert most_connections(0, 20_000) == 19_744
    assert most_connections(20_000, 256) == 128
    assert most_connections(50, resource.RLIM_INFINITY) == 50
    assert most_connections(0, resource.RLIM_INFINITY) > 10**9


def test_segments_get_what_connections_leave():
    assert left_for_segments(128, 256) == 104
    assert left_for_segments(32, 40) == 0
    assert left_for_segments(50, resource.RLIM_INFINITY) > 10**9


@pytest.mark.parametrize("times", [1, 3])
def test_a_flood_is_one_line_in_the_log(caplog, times):
    connection_limit = ConnectionLimit(Settings(max_connections=7))
    connection_limit.turned_away += times
    with caplog.at_level(logging.WARNING):
        connection_limit.tell()
        connection_limit.tell()
    assert [record.getMessage() for record in caplog.records] == [
        f"{times} connections turned away: 7 are open already"
    ]

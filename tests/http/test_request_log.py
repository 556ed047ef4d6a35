"""Requests under observation: ids that come back, lines about the slow and the failed, and never a secret."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.conftest import Serve
from tests.http.streaming import RunningApp
from topics.core.measurements import Histogram
from topics.http.exchange import Exchange
from topics.http.routing import Route

Start = Callable[..., RunningApp]


def quick(exchange: Exchange) -> None:
    exchange.reply(b"{}")


def slow(exchange: Exchange) -> None:
    time.sleep(0.002)
    exchange.reply(b"{}")


def broken(exchange: Exchange) -> None:
    raise RuntimeError("a bug")


def stream(exchange: Exchange) -> None:
    exchange.open_stream(b"text/event-stream").close()


ROUTES = {"/quick": quick, "/slow": slow, "/broken": broken, "/stream": stream, "/x/:topic": quick}


def routes() -> list[Route]:
    return [Route("GET", path, handler, query=("secret",)) for path, handler in ROUTES.items()]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = record.__dict__["fields"]
    return found


def said(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [fields(record) for record in caplog.records if record.message == message]


# --- ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/quick", "/stream", "/broken", "/nowhere", "/x/a"])
def test_an_id_comes_back_with_whatever_answer(serve: Serve, path: str) -> None:
    running = serve(routes())
    answer = running.request("GET", path, headers={"X-Request-Id": "abc-123.Z:/+=@_"})
    assert answer.headers["x-request-id"] == "abc-123.Z:/+=@_"


@pytest.mark.parametrize(
    "wrong", ["", "two words", "a,b", "x" * 129, "new%0aline\tx", "emoji-\N{GRINNING FACE}", "-x", '"quoted"']
)
def test_an_id_that_could_forge_a_log_is_no_id(serve: Serve, wrong: str) -> None:
    running = serve(routes())
    assert "x-request-id" not in running.request("GET", "/quick", headers={"X-Request-Id": wrong}).headers


def test_a_failure_gets_an_id_and_a_line(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    answer = serve(routes()).request("GET", "/broken")
    assert answer.status == 500
    (record,) = [record for record in caplog.records if record.message == "request failed"]
    assert fields(record)["request_id"] == answer.headers["x-request-id"]
    assert fields(record)["route"] == "/broken"
    assert record.exc_info is not None
    assert "a bug" not in answer.body.decode()


# --- lines ----------------------------------------------------------------------------------------------


def test_a_slow_request_is_logged_with_its_id(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running = serve(routes(), slow_request_ms=1)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    answer = running.request("GET", "/slow", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    (line,) = said(caplog, "slow request")
    assert line.pop("ms") >= 1
    assert line.pop("client").startswith("127.0.0.1:")
    assert line == {
        "request_id": answer.headers["x-request-id"],
        "method": "GET",
        "route": "/slow",
        "status": 200,
        "trace_id": trace,
    }
    assert running.server.request_log.slow_requests == 1


def test_trouble_does_not_flood_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(routes())
    wire = running.connect()
    now = time.perf_counter() + 3600
    for second in range(2):
        monkeypatch.setattr("topics.http.request_log.perf_counter", lambda at=now + second: at)
        for _ in range(30):
            wire.request("GET", "/quick")
    assert len(said(caplog, "slow request")) == 2 * 20
    assert caplog.text.count("more of the kind") == 2
    assert running.server.request_log.slow_requests == 2 * 30


def test_a_long_poll_is_not_slow(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    app = start(slow_request_ms=5)
    app.write("a", 1)
    caplog.clear()
    answer = app.call("POST", "/v0/topics/a/diff", {"from_seq": 1, "wait_ms": 20})
    assert answer.json["records"] == []
    request_log = app.app.server.request_log
    assert request_log.waits.count == 1
    assert request_log.waits.total >= 0.019
    assert not [line for line in said(caplog, "slow request") if line["route"].endswith("/diff")]


def test_the_id_of_a_watch_session_is_not_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Who knows it can read what its key may read."""
    caplog.set_level(logging.DEBUG, "topics")
    app = start(access_log=True)
    app.write("a", 1)
    wid = app.watch("a")["wid"]
    app.events(wid).until("caught-up")
    (line,) = [line for line in said(caplog, "request") if line["route"] == "/v0/watch/:wid"]
    assert wid not in str([record.__dict__ for record in caplog.records])
    assert "name" not in line


# --- counts ---------------------------------------------------------------------------------------------


def counts(timings: tuple[Histogram, ...]) -> list[int]:
    return [histogram.count for histogram in timings]


def test_requests_count_for_their_route_and_status(serve: Serve) -> None:
    running = serve(routes())
    for path in ("/quick", "/quick", "/broken", "/nowhere", "/stream"):
        running.request("GET", path)
    running.request("POST", "/quick")
    seen = {route.template: counts(route.timings) for route in running.server.routes}
    assert seen["/quick"] == [0, 0, 2, 0, 0, 0]
    assert seen["/broken"] == [0, 0, 0, 0, 0, 1]
    assert seen["/stream"] == [0, 0, 1, 0, 0, 0]
    request_log = running.server.request_log
    assert counts(request_log.unrouted) == [0, 0, 0, 0, 2, 0]
    assert (
        request_log.errors["not_found"],
        request_log.errors["method_not_allowed"],
        request_log.errors["internal"],
    ) == (
        1,
        1,
        1,
    )
    assert request_log.connections == 6


def test_clients_that_leave_are_counted(app: RunningApp, wait_until: Callable[..., None]) -> None:
    app.write("a", 1)
    wire = app.wire()
    body = json.dumps({"from_seq": 1, "wait_ms": 30_000}).encode()
    wire.send(
        b"POST /v0/topics/a/diff HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    wait_until(lambda: app.inside(lambda: len(app.app.service.parked)) == 1)
    wire.close()
    wait_until(lambda: app.app.server.request_log.abandoned_requests == 1)

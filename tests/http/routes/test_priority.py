"""Over the wire: writers to unimportant topics make way for readers of important ones, and lose nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.streaming import RunningApp
from tests.support import Wire, raw_request
from topics.flow import pacing
from topics.values.errors import ApiError

Start = Callable[..., RunningApp]
WRITE = raw_request("POST", "/v0/topics/low", b'{"records":[{"data":1},{"data":2}]}')
READ = raw_request("POST", "/v0/topics/high/diff", b"{}")


def prepared(start: Start) -> RunningApp:
    app = start()
    app.call("PUT", "/v0/topics/high", {"priority": 900})
    app.call("PUT", "/v0/topics/low", {"priority": -500})
    app.write("high", 1)
    return app


def test_reading_an_important_topic_holds_up_writes_to_others(start: Start) -> None:
    app = prepared(start)
    pacer = app.app.service.pacer
    assert not pacer.active
    wire = app.wire()
    wire.send(READ)
    assert wire.read().status == 200
    assert pacer.active


def test_watching_one_does_so_too(start: Start, wait_until: Callable[..., None]) -> None:
    app = prepared(start)
    app.stream("high")
    wait_until(lambda: app.app.service.pacer.active)


def test_reading_an_unimportant_topic_holds_up_nobody(start: Start) -> None:
    app = prepared(start)
    app.call("POST", "/v0/topics/low/diff", {})
    assert not app.app.service.pacer.active


def test_every_write_is_answered_and_none_is_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # So small a share that nearly every write has to wait.
    monkeypatch.setattr(pacing, "SHARE_S", 1e-9)
    app = prepared(start)
    writers, each = 16, 20

    def write(_: int) -> int:
        wire = Wire(app.address)
        try:
            answers = []
            for _ in range(each):
                wire.send(WRITE)
                answers.append(wire.read().json)
            return sum(answer["count"] for answer in answers)
        finally:
            wire.close()

    def read() -> None:
        for _ in range(100):
            assert app.call("POST", "/v0/topics/high/diff", {}).status == 200

    with ThreadPoolExecutor(writers + 1) as pool:
        reading = pool.submit(read)
        counted = sum(pool.map(write, range(writers)))
        reading.result()
    assert counted == writers * each * 2
    assert app.call("GET", "/v0/topics/low").json["head_seq"] == counted
    assert app.app.service.pacer.held == 0


def test_a_client_that_leaves_while_it_waits_gives_its_place_back(
    start: Start, wait_until: Callable[..., None]
) -> None:
    app = start(api_keys="k")
    key = app.app.server.context.keyring.keys[0]
    bearer = {"Authorization": "Bearer k"}
    app.call("PUT", "/v0/topics/high", {"priority": 900}, **bearer)
    app.call("PUT", "/v0/topics/low", {"priority": -500}, **bearer)
    held: list[Callable[[], None]] = []
    pacer = app.app.service.pacer

    def hold(priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        if priority < 0:
            held.append(work)
        return priority < 0

    pacer.active = True
    pacer.holds = hold  # type: ignore[method-assign]
    wire = Wire(app.address)
    wire.send(raw_request("POST", "/v0/topics/low", b'{"records":[{"data":1}]}', bearer))
    wait_until(lambda: len(held) == 1)
    assert key.inflight == 1
    # With a reset: who only ends its side may still want the answer.
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
    wait_until(lambda: key.inflight == 0)
    app.inside(held[0])
    assert app.call("GET", "/v0/topics/low", **bearer).json["head_seq"] == 0


@pytest.mark.parametrize("patient", [False, True])
def test_only_those_who_ask_for_it_wait_without_end(start: Start, patient: bool) -> None:
    app = prepared(start)
    pacer = app.app.service.pacer
    asked: list[bool] = []

    def hold(priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        asked.append(patient)
        if patient:
            return False
        raise ApiError("throttled", "later", {"retry_after_ms": 1500}, retry_after_s=2)

    pacer.active = True
    pacer.holds = hold  # type: ignore[method-assign]
    body = {"records": [{"data": 1}], **({"disable_backpressure": True} if patient else {})}
    answer = app.call("POST", "/v0/topics/low", body)
    assert asked == [patient]
    if patient:
        assert answer.json["first_seq"] == 1
    else:
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "throttled", "2")

"""Requests that travel in convoys: to their clients they are like any other, and each is counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.streaming import RunningApp
from tests.support import raw_request
from tests.support.accelerated import WAYS, using

APPEND = raw_request("POST", "/v0/topics/t", b'{"records":[{"data":100}]}')
DIFF = raw_request("POST", "/v0/topics/t/diff", b'{"from_seq":0,"limit":1}')


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def app(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    with using(request.param):
        app = RunningApp(tmp_path / "data")
        app.call("PUT", "/v0/topics/t", {})
        yield app
        app.stop()


def counted(app: RunningApp) -> int:
    """How many appends were answered, as the metrics tell it."""
    metrics = app.call("GET", "/v0/metrics").body.decode()
    found = re.findall(r'^\w+_count\{[^}]*route="/v0/topics/:topic"[^}]*\} (\d+)$', metrics, re.MULTILINE)
    assert found, metrics
    return sum(map(int, found))


def test_each_is_counted_once(app: RunningApp) -> None:
    wire = app.wire()
    before = counted(app)
    for _ in range(7):
        wire.send(APPEND)
        assert wire.read().status == 200
    assert counted(app) == before + 7


def test_what_comes_behind_one_that_travels_is_answered_behind_it(app: RunningApp) -> None:
    wire = app.wire()
    for _ in range(3):
        wire.send(APPEND)
        assert wire.read().status == 200

    def receive_both() -> None:
        (connection,) = [*app.app.server.context.connections]
        one: Any = connection
        one.data_received(APPEND)
        one.data_received(DIFF)

    app.inside(receive_both)
    assert wire.read().json["first_seq"] == 4
    assert wire.read().json["records"][0]["$seq"] == 1
    wire.send(APPEND)
    assert wire.read().json["first_seq"] == 5

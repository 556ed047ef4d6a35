"""Work streams over real sockets: what they deliver, when they refill, and what becomes of their leases."""

from __future__ import annotations

import pytest

from tests.http.queue_app import QueueApp
from tests.http.streaming import EventReader
from tests.support import eventually


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


def seqs(reader: EventReader, count: int) -> list[int]:
    return [reader.next("job").data["$seq"] for _ in range(count)]


def test_a_refill_joins_the_window_of_a_cohort(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    reader = app.work("node=w&max=2")
    assert reader.block() == "retry: 2000"
    assert app.window() == []
    app.write("q", 1)
    eventually(lambda: len(app.window()) == 1)
    app.write("q", 2)
    [claim] = app.window()
    assert claim.wanted == 2
    app.close_window()
    assert seqs(reader, 2) == [1, 2]


def test_a_stream_that_ends_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    reader = app.work()
    eventually(lambda: len(app.window()) == 1)
    reader.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)

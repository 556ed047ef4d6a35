"""Claims that wait for a job, or for the end of a window: which are answered, and what stays behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.http.queue_app import LEASE_MS, QueueApp
from tests.support import Wire, eventually, raw_request
from topics.flow.queues import dispatcher


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


class Waiting:
    """A claim under way on a connection of its own."""

    def __init__(self, app: QueueApp, **body: Any) -> None:
        self._app = app
        self._before = app.inside(lambda: len(app.app.service.parked))
        self.answers: list[Any] = []
        self._thread = threading.Thread(target=self._ask, args=(body,))
        self._thread.start()
        eventually(lambda: app.inside(lambda: len(app.app.service.parked)) > self._before)

    def _ask(self, body: dict[str, Any]) -> None:
        self.answers.append(self._app.do("claim", **{"node": "w", "wait_ms": 20_000} | body))

    def seqs(self) -> list[int]:
        self._thread.join(10)
        assert self.answers, "nothing ended the wait"
        return [job["$seq"] for job in self.answers[0]["claimed"]]


def test_a_job_that_goes_to_the_dead_letters_is_none(app: QueueApp) -> None:
    app.put(max_deliveries=1, dead_letter="dead")
    app.write("q", 1)
    app.claim()
    worker = Waiting(app)
    app.clock.advance(LEASE_MS + 1)
    eventually(lambda: app.counters() == (0, 0, 1))
    assert not worker.answers
    app.write("q", 2)
    assert worker.seqs() == [2]


def test_a_job_that_another_worker_of_the_cohort_got(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    others: list[threading.Thread] = []

    def ask(node: str, **body: Any) -> None:
        other = threading.Thread(target=app.do, args=("claim",), kwargs={"node": node, **body})
        other.start()
        others.append(other)
        eventually(lambda: len(app.window()) > 0)

    ask("first", wait_ms=20_000)
    app.close_window()
    eventually(lambda: len(app.inside(lambda: list(app.app.service.parked))) == 1)
    ask("second")
    app.write("q", 1)
    eventually(lambda: len(app.window()) == 2)
    app.close_window()
    others[1].join(10)
    eventually(lambda: app.counters() == (0, 1, 0))
    assert others[0].is_alive()
    app.write("q", 2)
    eventually(lambda: len(app.window()) == 1)
    app.close_window()
    others[0].join(10)
    assert app.counters() == (0, 2, 0)


def test_writes_are_noticed_at_once(app: QueueApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "POLL_S", 3600)
    worker = Waiting(app, max=3)
    app.write("q", 1, 2)
    assert worker.seqs() == [1, 2]


def test_nothing_stays_behind(app: QueueApp) -> None:
    before = app.footprint()
    worker = Waiting(app)
    assert app.footprint() != before
    app.write("q", 1)
    worker.seqs()
    eventually(lambda: app.footprint_since(before) == before)
    assert app.inside(lambda: not app.app.service.parked)


def test_a_wait_that_is_over_while_a_window_is_open(app: QueueApp) -> None:
    """What the window brings is for the worker that asked, late as it is."""
    app.put(claim_jitter_ms=5000)
    answers: list[Any] = []
    worker = threading.Thread(target=lambda: answers.append(app.do("claim", node="w", wait_ms=20_000)))
    worker.start()
    eventually(lambda: len(app.window()) == 1)
    app.close_window()
    eventually(lambda: len(app.inside(lambda: list(app.app.service.parked))) == 1)
    app.write("q", 1)
    eventually(lambda: len(app.window()) == 1)
    app.inside(lambda: [parked.release() for parked in list(app.app.service.parked)])
    assert not answers
    app.close_window()
    worker.join(10)
    assert [job["$seq"] for job in answers[0]["claimed"]] == [1]


# --- windows --------------------------------------------------------------------------------------------


def test_a_claimer_who_hangs_up_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    wire = Wire(app.address)
    wire.send(raw_request("POST", "/v0/topics/q/claim", b'{"node":"gone"}'))
    eventually(lambda: len(app.window()) == 1)
    wire.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)


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
    assert [reader.next("job").data["$seq"] for _ in range(2)] == [1, 2]


def test_a_stream_that_ends_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    reader = app.work()
    eventually(lambda: len(app.window()) == 1)
    reader.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)

"""Claims that wait: what ends the wait, who gets the job, and what stays behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import SHORT_MS, Queue, as_queue
from tests.support import Answer, eventually

LONG_MS = 20_000


class Waiting:
    """A claim under way on a connection of its own."""

    def __init__(self, queue: Queue, fields: dict[str, Any]) -> None:
        self.client = queue.server.client()
        self.answers: list[Answer] = []
        self._thread = threading.Thread(target=self._ask, args=(queue, fields))
        self._thread.start()
        time.sleep(0.1)
        assert not self.answers, "it was to wait, and did not"

    def _ask(self, queue: Queue, fields: dict[str, Any]) -> None:
        self.answers.append(self.client.send("POST", queue.path + "/claim", fields))

    def answer(self) -> Answer:
        self._thread.join(10)
        assert self.answers, "nothing ended the wait"
        return self.answers[0]

    def seqs(self) -> list[int]:
        return [job["$seq"] for job in self.answer().ok()["claimed"]]


@contextmanager
def waiting(queue: Queue, node: str = "w", **fields: Any) -> Iterator[Waiting]:
    worker = Waiting(queue, {"node": node, "wait_ms": LONG_MS, **fields})
    try:
        yield worker
    finally:
        worker._thread.join(LONG_MS / 1000 + 5)
        worker.client.close()


@pytest.fixture
def queue(new_topic: NewTopic) -> Queue:
    return as_queue(new_topic(type="queue"))


def test_a_job_that_is_there_is_not_waited_for(queue: Queue) -> None:
    queue.fill(1)
    assert queue.claimed(wait_ms=LONG_MS) == [1]


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_job_ends_the_wait(new_topic: NewTopic, durable: bool) -> None:
    queue = as_queue(new_topic(type="queue", leases_durable=durable))
    with waiting(queue, max=5) as worker:
        queue.write("a", "b")
        assert worker.seqs() == [1, 2]
    assert queue.counters() == (0, 2)


@pytest.mark.parametrize("by", ["nack", "delay", "expiry"])
def test_a_job_that_comes_back_ends_the_wait(queue: Queue, by: str) -> None:
    queue.fill(1)
    queue.claim(node="first", lease_ms=2 * SHORT_MS if by == "expiry" else 60_000)
    with waiting(queue) as worker:
        if by != "expiry":
            queue.do("nack", 1, node="first", delay_ms=SHORT_MS if by == "delay" else 0)
        assert worker.seqs() == [1]


def test_the_wait_is_over(queue: Queue) -> None:
    before = time.monotonic()
    answer = queue.ask("claim", {"node": "w", "wait_ms": 300}).ok()
    assert (answer["count"], answer["claimed"], answer["tombstone"]) == (0, [], None)
    assert time.monotonic() - before >= 0.29


def test_one_job_is_one_worker_s_and_the_others_wait_on(queue: Queue) -> None:
    with waiting(queue, "a") as first, waiting(queue, "b") as second:
        queue.write(1)
        eventually(lambda: bool(first.answers or second.answers))
        time.sleep(0.25)
        assert len(first.answers) + len(second.answers) == 1
        queue.write(2)
        assert sorted(first.seqs() + second.seqs()) == [1, 2]


def test_waiting_claims_share_with_a_cohort(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue", claim_jitter_ms=50))
    with waiting(queue, "a", max=4) as first, waiting(queue, "b", max=4) as second:
        queue.write(*range(4))
        assert sorted(map(len, (first.seqs(), second.seqs()))) == [2, 2]


def test_a_worker_that_leaves_takes_no_job_with_it(queue: Queue) -> None:
    client = queue.server.client()
    client._connection.request(
        "POST",
        queue.path + "/claim",
        b'{"node":"gone","wait_ms":20000}',
        {"Content-Type": "application/json"},
    )
    time.sleep(0.1)
    client.close()
    time.sleep(0.1)
    queue.fill(1)
    # Waiting workers are served some turns behind the write.
    assert [queue.counters() for _ in range(50)] == [(1, 0)] * 50


def test_the_queue_goes_while_a_worker_waits(queue: Queue) -> None:
    with waiting(queue) as worker:
        queue.drop()
        worker.answer().refused(404, "topic_not_found")


def test_the_server_stops_while_a_worker_waits(boot: Boot) -> None:
    server = boot()
    queue = as_queue(server.topic("jobs", type="queue"))
    with waiting(queue) as worker:
        server.stop()
        assert worker.seqs() == []


@pytest.mark.parametrize("wait_ms", [-1, "1", 1.5, None])
def test_unsound_waits(queue: Queue, wait_ms: Any) -> None:
    queue.ask("claim", {"node": "w", "wait_ms": wait_ms}).refused(400, "invalid_request")


def test_any_wait_is_limited_to_half_a_minute(queue: Queue) -> None:
    """Seen at a job that comes at once; a longer wait would be a longer test."""
    queue.fill(1)
    assert queue.claimed(wait_ms=10**15) == [1]

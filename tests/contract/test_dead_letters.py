"""Dead letters: why the last worker gave the job back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import Queue, as_queue
from tests.contract.server import TopicHandle


def given_up(new_topic: NewTopic, **config: Any) -> tuple[Queue, TopicHandle]:
    """A queue whose jobs are given up after two deliveries."""
    letters = new_topic()
    queue = as_queue(new_topic(type="queue", max_deliveries=2, dead_letter=letters.name, **config))
    return queue, letters


def errors(letters: TopicHandle) -> list[Any]:
    return [record["meta"].get("$dead_letter_error") for record in letters.diff()["records"]]


def test_the_last_error_goes_with_the_letter(new_topic: NewTopic) -> None:
    queue, letters = given_up(new_topic)
    queue.write("a", "b", "c", "d")
    queue.claim(4)
    queue.do("nack", 1, 2, 4, error="first")
    queue.do("nack", 3)
    queue.claim(4)
    queue.do("nack", 1, error='the kiln said "no" é')
    queue.do("nack", 2, 3)
    queue.do("ack", 4)
    assert queue.claim(4) == []
    # One that says nothing takes back nothing.
    assert errors(letters) == ['the kiln said "no" é', "first", None]
    assert queue.told() is None


def test_an_error_is_kept_with_durable_leases(boot: Boot) -> None:
    server = boot()
    config = {"max_deliveries": 2, "dead_letter": "letters", "leases_durable": True}
    queue = as_queue(server.topic("jobs", type="queue", **config))
    queue.write("a", "b")
    queue.claim(2)
    queue.do("nack", 1, 2, error="cracked")
    server.restart(cleanly=False)
    queue.claim(2)
    queue.do("nack", 2, error="burnt")
    server.restart(cleanly=True)
    queue.do("nack", 1)
    queue.claim(2)
    assert errors(TopicHandle(server, "letters")) == ["cracked", "burnt"]


def test_a_letter_that_dies_again_keeps_what_was_told_before_apart(new_topic: NewTopic) -> None:
    queue, _ = given_up(new_topic)
    queue.records({"data": 1, "meta": {"$dead_letter_error": "of another life", "own": 1}})
    for _ in range(2):
        queue.claim()
        queue.do("nack", 1)
    queue.claim()
    [letter] = TopicHandle(queue.server, queue.state()["config"]["dead_letter"]).diff()["records"]
    assert letter["meta"] == {
        "own": 1,
        "$dead_letter_from": queue.name,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
        "$dead_letter_before": {"$dead_letter_error": "of another life"},
    }


@pytest.mark.parametrize("error", ["e" * 1025, "é" * 513, 5, ["text"]])
def test_unsound_errors(new_topic: NewTopic, error: Any) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.write(1)
    queue.claim()
    queue.ask("nack", {"node": "w", "seqs": [1], "error": error}).refused(400, "invalid_request")
    assert queue.counters() == (0, 1)


@pytest.mark.parametrize("error", ["e" * 1024, "é" * 512, "", None])
def test_sound_errors(new_topic: NewTopic, error: Any) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.write(1)
    queue.claim()
    assert queue.do("nack", 1, error=error)["nacked"] == 1

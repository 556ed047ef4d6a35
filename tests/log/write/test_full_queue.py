"""A journal queue without room: whatever is refused has changed nothing, not even who owns a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.log.harness import Lab
from tests.support.appending import append, body_of
from topics.core.config import DEFAULT_CONFIG
from topics.core.errors import ApiError
from topics.log.lifecycle import drop_topic, put_topic
from topics.log.write import commit_queue as commit
from topics.log.write.operation import CallbackOp

CAPACITY = 8


@pytest.fixture
def lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(commit, "MAX_WAITING_OPS", CAPACITY)
    lab.put("t")
    lab.write("t", 1, 2)
    return lab


def fill_queue(lab: Lab, room: int) -> None:
    """Operations that do nothing, until only so many more fit."""
    for _ in range(CAPACITY - room):
        lab.engine.queue.submit(CallbackOp([], None, lambda _: None, _never, sync=False))


def _never(error: ApiError) -> None:
    raise AssertionError(error)


def refused(call: Callable[[Callable[[Any], None], Callable[[ApiError], None]], None]) -> None:
    answers: list[Any] = []
    with pytest.raises(ApiError) as refusal:
        call(answers.append, _never)
    assert refusal.value.code == "throttled"
    assert refusal.value.detail == {"retry_after_ms": 1000}
    assert answers == []


def test_a_refused_creation_leaves_the_name_free(lab: Lab) -> None:
    fill_queue(lab, 0)
    refused(lambda done, fail: put_topic(lab.engine, "new", DEFAULT_CONFIG, done, fail))
    refused(lambda done, fail: append(lab.engine, "new", body_of(1), done, fail))
    lab.engine.queue.sync_now()
    assert lab.engine.find("new") is None
    assert lab.put("new") is True
    lab.write("new", 1)
    lab.restart()
    assert lab.topic("new").head == 1


def test_a_refused_drop_leaves_the_topic(lab: Lab) -> None:
    fill_queue(lab, 0)
    refused(lambda done, fail: drop_topic(lab.engine, "t", False, done, fail))
    lab.engine.queue.sync_now()
    assert lab.topic("t").head == 2
    assert lab.drop("t") is True


@pytest.mark.parametrize("room", [0, 1])
def test_a_refused_write_takes_no_seqs_and_no_reservation(lab: Lab, room: int) -> None:
    """Also when the write itself would fit, and only the reservation behind it would not."""
    topic = lab.topic("t")
    before = topic.assigned, topic.reserved, topic.reserve_asked
    fill_queue(lab, room)
    refused(lambda done, fail: append(lab.engine, "t", body_of(*range(5000)), done, fail))
    assert (topic.assigned, topic.reserved, topic.reserve_asked) == before
    lab.engine.queue.sync_now()
    assert topic.head == 2
    assert lab.write("t", 3).first_seq == 3

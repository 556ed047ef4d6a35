"""Seqs that are reserved ahead of use: the next step is asked for when less than a quarter of one is left."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from tests.support.appending import Appended, append, body_of
from topics.core.errors import ApiError
from topics.log.write.reservation import extend_if_short


def test_the_next_step_is_asked_for_when_less_than_a_quarter_is_left(lab: Lab) -> None:
    lab.put("t")
    topic = lab.topic("t")
    asked, quarter = topic.reserve_asked, topic.reserving >> 2
    lab.write("t", *range(asked - quarter - topic.assigned))
    assert (topic.reserve_asked, topic.reserved - topic.assigned) == (asked, quarter)
    extend_if_short(lab.engine, topic)
    assert topic.reserve_asked == asked
    lab.write("t", 1)
    assert topic.reserve_asked == topic.reserved > asked


def test_a_write_up_to_the_last_seq_that_is_reserved_waits_for_no_sync(lab: Lab) -> None:
    lab.put("t", durability="memory")
    topic = lab.topic("t")
    answers: list[Appended] = []
    for count, is_answered in ((topic.reserved - topic.assigned, True), (1, True), (1 << 13, False)):
        append(lab.engine, "t", body_of(*range(count)), answers.append, pytest.fail)
        lab.engine.queue.flush()
        assert bool(answers) == is_answered
        lab.engine.queue.sync_now()
        answers.clear()


@pytest.mark.parametrize("error", [MemoryError(), ApiError("disk_full", "full")])
def test_a_reservation_that_found_no_room_is_requested_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    lab.put("t")
    topic = lab.topic("t")
    topic.reserving = 1 << 12
    with monkeypatch.context() as patched:
        patched.setattr(lab.engine.queue, "submit", refuse)
        extend_if_short(lab.engine, topic)
    assert topic.reserve_asked == topic.reserved
    extend_if_short(lab.engine, topic)
    lab.engine.queue.sync_now()
    assert topic.reserved == topic.reserve_asked > 1 << 12

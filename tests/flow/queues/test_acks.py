"""Acknowledgements that share a frame: each worker gets the result for its own jobs."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import QueueLab, fill, numbers, unexpected
from tests.support.appending import append
from topics.core.errors import ApiError
from topics.flow.queues import queue as queue_module
from topics.flow.queues.settlement import Settlement, Verb

Answer = tuple[int, list[int], list[int]]


def acknowledge(lab: QueueLab, node: str, *seqs: int) -> list[Answer | ApiError]:
    """Not committed yet; the answer is in the list as soon as there is one."""
    answers: list[Answer | ApiError] = []
    guarded = [(seq, None) for seq in seqs]

    def done(ack: Settlement) -> None:
        answers.append((len(ack.seqs), ack.skipped, ack.lost))

    lab.queue().settle(Settlement(Verb.ACK, node, guarded, done, answers.append))
    return answers


def test_one_frame_for_all_that_come_before_the_journal_is_written(lab: QueueLab) -> None:
    fill(lab, 6)
    lab.claim(3, "a")
    lab.claim(3, "b")
    before = len(lab.frames())
    first, second = acknowledge(lab, "a", 3, 1), acknowledge(lab, "b", 5, 2)
    assert first == second == []
    lab.engine.queue.sync_now()
    assert (first, second) == ([(2, [], [])], [(1, [2], [])])
    assert len(lab.frames()) == before + 1
    assert lab.counters() == (0, 3, 0)
    lab.restart()
    assert numbers(lab.claim(8)) == [2, 4, 6]


def test_the_next_ones_go_with_the_next_frame(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(2)
    for seq in (1, 2):
        answers = acknowledge(lab, "w", seq)
        lab.engine.queue.sync_now()
        assert answers == [(1, [], [])]


def test_what_was_lost_meanwhile_is_told_to_the_one_who_had_it(lab: QueueLab) -> None:
    lab.put("q", cap_records=2)
    fill(lab, 2)
    lab.claim(1, "a")
    lab.claim(1, "b")
    append(lab.engine, "q", b'{"records":[{"data":3}]}', lambda _: None, unexpected)
    first, second = acknowledge(lab, "a", 1), acknowledge(lab, "b", 2)
    lab.engine.queue.sync_now()
    assert (first, second) == ([(0, [], [1])], [(1, [], [])])


def test_a_job_that_gets_too_old_on_the_way_is_finished(lab: QueueLab) -> None:
    lab.put("q", ttl_ms=500)
    fill(lab, 2)
    lab.claim(2)
    first = acknowledge(lab, "w", 1)
    lab.clock.advance(400)
    second = acknowledge(lab, "w", 2)
    lab.clock.advance(200)
    lab.engine.queue.sync_now()
    assert first == second == [(1, [], [])]
    assert (lab.claim(2), lab.told) == ([], None)
    lab.restart()
    assert (lab.claim(2), lab.told) == ([], None)


def test_more_than_fit_in_one_deletion(lab: QueueLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_JOBS", 3)
    fill(lab, 8)
    lab.claim(8)
    before = len(lab.frames())
    answers = [acknowledge(lab, "w", seq, seq + 1) for seq in (1, 3, 5, 7)]
    lab.engine.queue.sync_now()
    assert answers == [[(2, [], [])]] * 4
    assert len(lab.frames()) == before + 2
    assert lab.counters() == (0, 0, 0)


def test_a_deletion_that_is_as_large_as_may_be_is_not_joined(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_JOBS", 2)
    fill(lab, 4)
    lab.claim(4)
    before = len(lab.frames())
    answers = [acknowledge(lab, "w", seq, seq + 1) for seq in (1, 3)]
    lab.engine.queue.sync_now()
    assert answers == [[(2, [], [])]] * 2
    assert len(lab.frames()) == before + 2


@pytest.mark.parametrize(("durability", "waits"), [("disk", False), ("fsync", True)])
def test_an_acknowledgement_waits_for_the_disk_where_the_class_asks_for_it(
    lab: QueueLab, durability: str, waits: bool
) -> None:
    lab.put("q", durability=durability)
    lab.write("q", 1)
    lab.claim(1)
    answers = acknowledge(lab, "w", 1)
    lab.engine.queue.flush()
    assert (answers == []) is waits
    lab.engine.queue.sync_now()
    assert answers == [(1, [], [])]


def test_when_they_cannot_be_committed_each_worker_is_told_and_all_jobs_are_free(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(1, "a")
    lab.claim(1, "b")
    lab.break_the_disk()
    first, second = acknowledge(lab, "a", 1), acknowledge(lab, "b", 2)
    lab.engine.queue.sync_now()
    assert [error.code for error in (*first, *second) if isinstance(error, ApiError)] == ["internal"] * 2
    assert lab.counters() == (2, 0, 0)


def test_one_that_comes_when_writes_are_off_is_refused_at_once(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(2)
    lab.break_the_disk()
    acknowledge(lab, "w", 1)
    lab.engine.queue.sync_now()
    with pytest.raises(ApiError):
        acknowledge(lab, "w", 2)
    assert lab.counters() == (2, 0, 0)


def test_a_queue_that_is_dropped_right_behind_them(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(2)
    answers = acknowledge(lab, "w", 1)
    lab.drop("q")
    assert answers == [(1, [], [])]
    lab.restart()
    lab.put("q")
    assert lab.counters() == (0, 0, 0)

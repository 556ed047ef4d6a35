"""Queues on an engine: claims, acknowledgements, what time and removals do to leases, and restarts."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, numbers, unexpected
from topics.core.errors import ApiError
from topics.flow.queues.jobs import gone_among
from topics.flow.queues.settlement import Settlement, Verb
from topics.log.topic import Topic

# --- acknowledging ------------------------------------------------------------------------------------------


def test_while_it_is_committed_a_job_is_neither_claimable_nor_acknowledged_twice(lab: QueueLab) -> None:
    fill(lab, 1)
    lab.claim()
    answers: list[tuple[int, list[int]]] = []

    def done(ack: Settlement) -> None:
        answers.append((len(ack.seqs), ack.skipped))

    queue = lab.queue()
    queue.settle(Settlement(Verb.ACK, "w", [(1, None)], done, unexpected))
    lab.clock.advance(LEASE_MS + 1)
    queue.settle(Settlement(Verb.ACK, "w", [(1, None)], done, unexpected))
    assert answers == [(0, [1])]
    assert lab.counters() == (0, 1, 0)
    lab.engine.queue.sync_now()
    assert answers == [(0, [1]), (1, [])]
    assert lab.counters() == (0, 0, 0)


def test_when_the_deletion_cannot_be_committed_the_job_is_claimable_again(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(2)
    lab.break_the_disk()
    with pytest.raises(ApiError) as refusal:
        lab.ack(1)
    assert refusal.value.code == "internal"
    assert lab.counters() == (1, 1, 0)
    # From now on nothing is taken; a job must not stay in the hands of a request that failed at once.
    with pytest.raises(ApiError):
        lab.ack(2)
    assert lab.counters() == (2, 0, 0)
    assert numbers(lab.claim(2)) == [1, 2]


def test_a_full_journal_queue_refuses_an_acknowledgement_and_leaves_the_lease(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab, 1)
    lab.claim()
    with monkeypatch.context() as patch:
        patch.setattr("topics.log.write.commit_queue.MAX_WAITING_OPS", 0)
        with pytest.raises(ApiError) as refusal:
            lab.ack(1)
    assert refusal.value.code == "throttled"
    assert lab.counters() == (0, 1, 0)
    assert lab.ack(1) == (1, [])


# --- giving back and extending ------------------------------------------------------------------------------


# --- removals -----------------------------------------------------------------------------------------------


def test_our_own_deletions_need_no_search_for_lost_jobs(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab, 4)
    lab.claim(4)
    searches: list[set[int]] = []

    def search(topic: Topic, seqs: set[int]) -> set[int]:
        searches.append(seqs)
        return gone_among(topic, seqs)

    monkeypatch.setattr("topics.flow.queues.queue.gone_among", search)
    lab.ack(1, 2)
    lab.write("q", 5)
    assert lab.counters() == (1, 2, 0)
    assert searches == []
    lab.delete("q", before=4)
    assert lab.counters() == (1, 1, 0)
    assert searches == [{3, 4}]


def test_a_deleted_job_never_comes_back_from_a_delay(lab: QueueLab) -> None:
    fill(lab, 3)
    lab.claim(3)
    lab.nack(1, 2, 3, delay_ms=100)
    lab.delete("q", before=3)
    lab.clock.advance(100)
    assert numbers(lab.claim(9)) == [3]


# --- long histories -----------------------------------------------------------------------------------------

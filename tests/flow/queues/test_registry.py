"""Queues after a restart: leases that were to survive, and those that were not."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, numbers, unexpected
from topics.core.errors import ApiError
from topics.flow.queues.claims import Claim
from topics.flow.queues.leases import Holder
from topics.storage.frame import Frame, Kind


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpoint", ["none", "before", "after"])
def test_durable_leases_hold_across_a_restart(lab: QueueLab, clean: bool, checkpoint: str) -> None:
    lab.put("q", leases_durable=True)
    fill(lab, 7)
    if checkpoint == "before":
        lab.claim(1)
        lab.checkpoint()
        lab.nack(1)
    token = int(lab.claim(5)[0]["lease_id"][6:], 16)
    lab.ack(2)
    lab.nack(3)
    lab.nack(4, delay_ms=5000)
    lab.extend(5, lease_ms=2000)
    if checkpoint == "after":
        lab.checkpoint()
    counters = lab.counters()
    lab.restart(clean=clean)
    lab.restart(clean=clean)
    assert lab.counters() == counters == (3, 2, 0)
    assert [(job["$seq"], job["deliveries"]) for job in lab.claim(1)] == [(3, 2)]
    assert lab.queue().table.deliveries[1] == (2 if checkpoint == "before" else 1)
    lab.clock.advance(LEASE_MS)
    assert lab.ack(1, token=token) == (1, [])
    lab.clock.advance(1)
    assert [(j["$seq"], j["deliveries"]) for j in lab.claim(9)] == [(3, 3), (6, 1), (7, 1)]
    lab.clock.advance(1000)
    assert [(j["$seq"], j["deliveries"]) for j in lab.claim(1)] == [(5, 2)]
    lab.clock.advance(3000)
    assert (4, 2) in [(j["$seq"], j["deliveries"]) for j in lab.claim(9)]


def test_leases_given_before_they_became_durable_are_journalled_with_the_first_that_are(
    lab: QueueLab,
) -> None:
    fill(lab, 3)
    lab.claim(2)
    lab.put("q", leases_durable=True)
    lab.claim(1)
    lab.restart()
    assert lab.counters() == (0, 3, 0)
    lab.put("q", leases_durable=False)
    lab.restart()
    assert lab.counters() == (3, 0, 0)


def test_jobs_nobody_wrote_down_are_not_lost_when_leases_become_durable(lab: QueueLab) -> None:
    """A gap below the delivered jobs is filled from the log, not from the leases."""
    lab.put("q", leases_durable=True)
    fill(lab, 5)
    lab.claim(4)
    queue = lab.queue()
    queue.table.finish([1, 2])
    lab.checkpoint()
    lab.restart()
    assert lab.counters() == (3, 2, 0)
    assert numbers(lab.claim(9)) == [1, 2, 5]


def test_a_durable_claim_that_cannot_be_committed_gives_its_jobs_back(lab: QueueLab) -> None:
    lab.put("q", leases_durable=True)
    fill(lab, 2)
    lab.break_the_disk()
    for _ in range(2):
        with pytest.raises(ApiError) as refusal:
            lab.claim(2)
        assert refusal.value.code == "internal"
        assert lab.counters() == (2, 0, 0)


def test_a_released_connection_is_remembered(lab: QueueLab) -> None:
    lab.put("q", leases_durable=True)
    fill(lab, 2)
    holder = Holder()
    lab.claim(2, holder=holder)
    lab.queue().release(holder)
    lab.engine.queue.sync_now()
    lab.restart()
    assert lab.counters() == (2, 0, 0)


def test_a_new_instance_starts_without_the_leases_of_the_old_one(lab: QueueLab) -> None:
    lab.put("q", leases_durable=True)
    fill(lab, 2)
    lab.claim(2)
    lab.drop("q")
    lab.put("q", leases_durable=True)
    assert lab.counters() == (0, 0, 0)
    fill(lab, 1)
    lab.restart()
    assert lab.counters() == (1, 0, 0)


def test_all_queues_are_those_that_are_there_and_nothing_else(lab: QueueLab) -> None:
    """Found without a look at the other topics, of which there may be a hundred thousand."""
    lab.put("log", type="log")
    for name in ("a", "b", "c"):
        lab.put(name)
    lab.drop("b")
    assert [queue.topic.name for queue in lab.queues.all()] == ["q", "a", "c"]
    lab.put("b")
    lab.restart()
    assert sorted(queue.topic.name for queue in lab.queues.all()) == ["a", "b", "c", "q"]
    assert all(lab.queue(name) in lab.queues.all() for name in "abcq")


@pytest.mark.parametrize("kind", [Kind.LEASE, Kind.DEAD_LETTER])
def test_frames_of_what_is_no_queue_are_passed_over(lab: QueueLab, kind: Kind) -> None:
    """The topic is gone, or a restore has made it anew."""
    lab.put("log", type="log")
    for topic_id in (lab.topic("log").id, 999):
        lab.queues.replay(Frame(kind, 0, 1, topic_id, 1, 0, 0, position=0, payload=memoryview(b"?")))


@pytest.mark.parametrize(("durability", "answered"), [("disk", True), ("fsync", False)])
def test_a_durable_lease_is_on_disk_before_it_is_told(lab: QueueLab, durability: str, answered: bool) -> None:
    lab.put("q", leases_durable=True, durability=durability)
    fill(lab, 1)
    answers: list[Claim] = []
    lab.queue().serve([Claim("w", 1, LEASE_MS, answers.append, unexpected)])
    lab.engine.queue.flush()
    assert bool(answers) == answered
    lab.engine.queue.sync_now()
    assert answers

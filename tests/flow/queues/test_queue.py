"""Queues on an engine: claims, acknowledgements, what time and removals do to leases, and restarts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, numbers, unexpected
from tests.log.harness import records
from topics.flow.queues.jobs import gone_among
from topics.flow.queues.leases import Holder
from topics.flow.queues.settlement import Settlement, Verb
from topics.log.topic import Topic
from topics.values.errors import ApiError

# --- acknowledging ------------------------------------------------------------------------------------------


def test_an_acknowledged_job_is_gone_for_good(lab: QueueLab) -> None:
    fill(lab, 3)
    lab.claim(2)
    assert lab.ack(2, 2, 3, 99) == (1, [2, 3, 99])
    assert lab.ack(2) == (0, [2])
    assert lab.seqs("q") == [1, 3]
    assert lab.gaps("q") == []
    assert lab.counters() == (1, 1, 0)
    lab.clock.advance(LEASE_MS + 1)
    assert numbers(lab.claim(9)) == [1, 3]


def test_only_the_holder_may_acknowledge_and_only_before_the_deadline(lab: QueueLab) -> None:
    fill(lab, 1)
    token = int(lab.claim()[0]["lease_id"][6:], 16)
    assert lab.ack(1, node="somebody") == (0, [1])
    assert lab.ack(1, token=token + 1) == (0, [1])
    lab.clock.advance(LEASE_MS + 1)
    assert lab.ack(1, token=token) == (0, [1])
    lab.claim()
    assert lab.ack(1, token=token) == (0, [1])
    assert lab.ack(1) == (1, [])


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


def test_one_frame_acknowledges_all_of_a_request(lab: QueueLab) -> None:
    fill(lab, 8)
    lab.claim(8)
    before = len(lab.frames())
    lab.ack(*range(1, 9))
    assert len(lab.frames()) == before + 1


# --- giving back and extending ------------------------------------------------------------------------------


def test_a_nack_ends_the_lease_now_or_after_a_delay(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(2)
    assert lab.nack(1, 1, 7) == (1, [1, 7])
    assert lab.counters() == (1, 1, 0)
    assert lab.nack(2, delay_ms=500) == (1, [])
    assert lab.counters() == (1, 0, 0)
    lab.clock.advance(499)
    assert numbers(lab.claim(9)) == [1]
    lab.clock.advance(1)
    assert [(job["$seq"], job["deliveries"]) for job in lab.claim(9)] == [(2, 2)]


def test_an_extension_sets_a_new_deadline(lab: QueueLab) -> None:
    fill(lab, 2)
    lab.claim(1)
    lab.clock.advance(10)
    now = lab.clock.now_ms()
    assert lab.extend(1, 2, lease_ms=100) == ({1: now + 100}, [2])
    assert lab.extend(1, node="somebody") == ({}, [1])
    lab.clock.advance(101)
    assert lab.extend(1) == ({}, [1])
    assert lab.counters() == (2, 0, 0)


def test_a_connection_that_ends_gives_back_its_own_leases_only(lab: QueueLab) -> None:
    fill(lab, 4)
    holder = Holder()
    lab.claim(1, "w")
    lab.claim(3, "w", holder=holder)
    lab.ack(3)
    lab.queue().release(holder)
    assert lab.counters() == (2, 1, 0)
    assert numbers(lab.claim(9)) == [2, 4]


# --- removals -----------------------------------------------------------------------------------------------


def test_jobs_taken_by_cap_age_or_delete_stop_counting_everywhere(lab: QueueLab) -> None:
    lab.put("q", cap_records=6)
    lab.write("q", *({"data": n, "tag": f"t{n}"} for n in range(1, 7)))
    lab.claim(4)
    lab.nack(1)
    lab.nack(2, delay_ms=10_000)
    lab.delete("q", match="t3")
    assert lab.counters() == (3, 1, 0)
    lab.write("q", 7, 8)
    assert lab.counters() == (4, 1, 0)
    assert (lab.ack(1, 2, 3), lab.lost) == ((0, [2, 3]), [1])
    lab.put("q", ttl_ms=50)
    lab.clock.advance(51)
    assert lab.counters() == (0, 0, 0)
    assert (lab.ack(4), lab.lost) == ((0, []), [4])
    assert lab.claim(9) == []


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


@pytest.mark.parametrize("seed", range(6))
def test_no_job_is_lost_doubled_or_resurrected(tmp_path: Path, seed: int) -> None:
    """Random work on a queue with caps, age, deletes, dead letters and restarts; jobs are accounted for."""
    dice = random.Random(seed)
    lab = QueueLab(tmp_path)
    limits = dice.choice([{}, {"cap_records": 12}, {"ttl_ms": 3000}])
    durable = dice.random() < 0.5
    config = {"leases_durable": durable, "max_deliveries": 3, "dead_letter": "dead", **limits}
    config["durability"] = dice.choice(["disk", "fsync"])
    lab.put("q", **config)
    acked: set[int] = set()
    held: dict[int, tuple[str, int]] = {}
    for _ in range(250):
        roll, node = dice.random(), dice.choice("abc")
        if roll < 0.25:
            lab.write("q", *[{"data": 0, "tag": dice.choice("xyz")} for _ in range(dice.randint(1, 4))])
        elif roll < 0.5:
            for job in lab.claim(dice.randint(1, 5), node):
                seq = job["$seq"]
                assert seq not in acked
                assert held.get(seq, ("", 0))[1] < lab.clock.now_ms()
                assert job["deliveries"] <= 3
                held[seq] = (node, job["deadline"])
        elif roll < 0.65:
            mine = [seq for seq, (holder, _) in held.items() if holder == node][:3]
            _, skipped = lab.ack(*mine, node=node)
            acked.update(set(mine) - set(skipped))
            for seq in mine:
                held.pop(seq)
        elif roll < 0.75:
            mine = [seq for seq, (holder, _) in held.items() if holder == node][:2]
            lab.nack(*mine, node=node, delay_ms=dice.choice([0, 700]))
            for seq in mine:
                held.pop(seq)
        elif roll < 0.85:
            lab.clock.advance(dice.choice([1, 400, LEASE_MS + 1]))
        elif roll < 0.9:
            lab.delete("q", match=dice.choice("xyz")) if dice.random() < 0.3 else lab.checkpoint()
        elif roll < 0.95:
            counters = lab.counters()
            lab.restart(clean=dice.random() < 0.5)
            if durable:
                assert lab.counters() == counters
            else:
                assert lab.counters() == (lab.topic("q").live_count, 0, counters[2])
                held.clear()
        lab.counters()
    live = set(lab.seqs("q"))
    letters = records(lab.diff("dead")) if lab.engine.find("dead") is not None else []
    dead = {int(letter["meta"]["$dead_letter_src_seq"]) for letter in letters}
    assert len(dead) == len(letters)
    assert not live & acked
    assert not live & dead
    assert not dead & acked
    assert lab.counters()[2] == len(dead)

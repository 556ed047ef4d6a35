"""Queues on an engine: claims, acknowledgements, what time and removals do to leases, and restarts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.flow.queue_lab import LEASE_MS, QueueLab, jobs, numbers, unexpected
from tests.log.harness import records
from topics.flow.queues.claims import Claim
from topics.flow.queues.jobs import gone_among
from topics.flow.queues.leases import Holder
from topics.log.topic import Topic
from topics.values.errors import ApiError


@pytest.fixture
def lab(tmp_path: Path) -> QueueLab:
    lab = QueueLab(tmp_path)
    lab.put("q")
    return lab


def fill(lab: QueueLab, count: int) -> None:
    lab.write("q", *range(count))


# --- claiming -----------------------------------------------------------------------------------------------


def test_a_claimed_job_has_tag_and_meta_and_lease_but_no_node(lab: QueueLab) -> None:
    lab.write("q", {"data": {"a": [1]}, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": None})
    first, second = lab.claim(2)
    now = lab.clock.now_ms()
    token = first.pop("lease_id")
    assert token.startswith("lease_")
    assert int(token[6:], 16) > 0
    assert token == token.lower()
    assert first == {
        "$seq": 1,
        "$ts": now,
        "$tag": "t",
        "deadline": now + LEASE_MS,
        "deliveries": 1,
        "data": {"a": [1]},
        "meta": {"m": 1},
    }
    assert second["lease_id"] != token
    assert set(second) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}
    assert second["data"] is None


def test_the_same_from_a_sealed_segment(lab: QueueLab) -> None:
    lab.write("q", *({"data": number, "tag": f"t{number}", "meta": {"m": number}} for number in range(6)))
    lab.checkpoint(everything=True)
    lab.delete("q", match="t2")
    claimed = lab.claim(9)
    assert [(j["$seq"], j["$tag"], j["data"], j["meta"]) for j in claimed] == [
        (n + 1, f"t{n}", n, {"m": n}) for n in (0, 1, 3, 4, 5)
    ]


def test_returned_jobs_come_first_then_fresh_ones_in_order(lab: QueueLab) -> None:
    fill(lab, 6)
    assert numbers(lab.claim(4)) == [1, 2, 3, 4]
    lab.nack(4, 2)
    assert numbers(lab.claim(3)) == [2, 4, 5]
    lab.clock.advance(LEASE_MS + 1)
    assert [(j["$seq"], j["deliveries"]) for j in lab.claim(9)] == [
        (1, 2),
        (2, 3),
        (3, 2),
        (4, 3),
        (5, 2),
        (6, 1),
    ]


def test_a_lease_ends_strictly_after_its_deadline(lab: QueueLab) -> None:
    fill(lab, 1)
    lab.claim()
    lab.clock.advance(LEASE_MS)
    assert lab.claim() == []
    assert lab.counters() == (0, 1, 0)
    lab.clock.advance(1)
    assert lab.counters() == (1, 0, 0)
    assert numbers(lab.claim()) == [1]


def test_a_claim_stops_at_its_byte_budget_but_gives_one_job_always(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.flow.queues.queue.MAX_CLAIM_BYTES", 50)
    lab.write("q", "x" * 100, "y" * 20, "z", "w")
    assert numbers(lab.claim(9)) == [1]
    assert numbers(lab.claim(9)) == [2, 3]
    assert [job["deliveries"] for job in lab.claim(9)] == [1]
    assert lab.counters() == (0, 4, 0)


def test_jobs_of_a_damaged_segment_are_lost_not_claimed(lab: QueueLab) -> None:
    fill(lab, 4)
    lab.checkpoint(everything=True)
    fill(lab, 2)
    path = lab.segment_files()[0]
    path.write_bytes(b"\0" * path.stat().st_size)
    assert numbers(lab.claim(9)) == [5, 6]
    assert lab.counters() == (0, 2, 0)


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

    def done(acked: int, skipped: list[int], _: Any) -> None:
        answers.append((acked, skipped))

    queue = lab.queue()
    queue.ack("w", [(1, None)], done, unexpected)
    lab.clock.advance(LEASE_MS + 1)
    queue.ack("w", [(1, None)], done, unexpected)
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
    assert lab.ack(1, 2, 3) == (0, [1, 2, 3])
    lab.put("q", ttl_ms=50)
    lab.clock.advance(51)
    assert lab.counters() == (0, 0, 0)
    assert lab.ack(4) == (0, [4])
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


# --- cohorts ------------------------------------------------------------------------------------------------


def dealt(lab: QueueLab, *wanted: int, left: tuple[int, ...] = ()) -> list[list[Any]]:
    """What claimers get who come into the same window."""

    async def meet() -> list[Claim]:
        served = asyncio.Event()
        claims = [
            Claim(f"w{at}", most, LEASE_MS + at, lambda _: served.set(), unexpected)
            for at, most in enumerate(wanted)
        ]
        for claim in claims:
            lab.queue().claim(claim)
        for at in left:
            claims[at].leave()
        assert not served.is_set()
        await served.wait()
        return claims

    return [jobs(claim) for claim in asyncio.run(meet())]


def test_a_cohort_is_served_in_rotation(lab: QueueLab) -> None:
    lab.put("q", claim_jitter_ms=1)
    fill(lab, 18)
    assert [len(claimed) for claimed in dealt(lab, 9, 9, 9)] == [6, 6, 6]
    fill(lab, 11)
    few, many = dealt(lab, 3, 50)
    assert (len(few), len(many)) == (3, 8)
    assert numbers(few) == [19, 21, 23]
    assert numbers(many) == [20, 22, 24, 25, 26, 27, 28, 29]
    assert {job["deadline"] for job in many} == {lab.clock.now_ms() + LEASE_MS + 1}


def test_a_claimer_who_left_is_left_out(lab: QueueLab) -> None:
    lab.put("q", claim_jitter_ms=1)
    fill(lab, 4)
    assert [len(claimed) for claimed in dealt(lab, 4, 4, left=(0,))] == [0, 4]


def test_a_queue_deleted_within_the_window_refuses_everybody(lab: QueueLab) -> None:
    queue = lab.queue()
    refusals: list[ApiError] = []
    lab.drop("q")
    queue.serve([Claim("w", 1, LEASE_MS, lambda _: None, refusals.append)])
    assert [refusal.code for refusal in refusals] == ["topic_not_found"]


# --- restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_leases_are_forgotten_at_a_restart_and_acknowledgements_are_not(lab: QueueLab, clean: bool) -> None:
    fill(lab, 4)
    before = lab.claim(3)
    lab.ack(2)
    lab.nack(3, delay_ms=60_000)
    lab.restart(clean=clean)
    assert lab.counters() == (3, 0, 0)
    claimed = lab.claim(9)
    assert [(job["$seq"], job["deliveries"]) for job in claimed] == [(1, 1), (3, 1), (4, 1)]
    assert not {job["lease_id"] for job in before} & {job["lease_id"] for job in claimed}


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

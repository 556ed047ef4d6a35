"""Claims: which jobs come first, how many fit, and cohorts that share them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, jobs, numbers, unexpected
from topics.flow.queues.claims import Claim
from topics.values.errors import ApiError


def fill(lab: QueueLab, count: int) -> None:
    lab.write("q", *range(count))


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

"""Claims: which jobs come first, how many fit, and cohorts that share them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, jobs, numbers, unexpected
from topics.flow.queues.claims import Claim, take_jobs
from topics.values.errors import ApiError


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


def test_no_more_jobs_that_came_back_are_handed_out_than_were_asked_for(lab: QueueLab) -> None:
    fill(lab, 3)
    lab.claim(3)
    lab.clock.advance(LEASE_MS + 1)
    lab.queue().refresh()
    assert [job.seq for job in take_jobs(lab.topic("q"), lab.queue().table, 2, 10_000)] == [1, 2]
    assert [job.seq for job in take_jobs(lab.topic("q"), lab.queue().table, 2, 10_000)] == [3]


def test_a_claim_that_is_alone_in_its_window_is_served(lab: QueueLab) -> None:
    lab.put("q", claim_jitter_ms=1)
    fill(lab, 2)
    (claimed,) = dealt(lab, 1)
    assert numbers(claimed) == [1]

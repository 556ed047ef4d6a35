"""Claims: which jobs come first, how many fit, and cohorts that share them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flow.queues.lab import LEASE_MS, QueueLab, fill, jobs, numbers, unexpected
from topics.flow.queues.claims import Claim, take_jobs


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


def test_no_more_jobs_that_came_back_are_handed_out_than_were_asked_for(lab: QueueLab) -> None:
    fill(lab, 3)
    lab.claim(3)
    lab.clock.advance(LEASE_MS + 1)
    lab.queue().refresh()
    assert [job.seq for job in take_jobs(lab.topic("q"), lab.queue().table, 2, 10_000)] == [1, 2]
    assert [job.seq for job in take_jobs(lab.topic("q"), lab.queue().table, 2, 10_000)] == [3]

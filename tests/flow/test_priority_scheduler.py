"""Who waits while something better is being read, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from topics.core.errors import ApiError
from topics.flow.load_shedder import LoadShedder
from topics.flow.priority_scheduler import (
    GAP,
    MOST_HELD_BYTES,
    MOST_IN_A_GROUP,
    SHARE_S,
    PriorityScheduler,
)

HIGH, LOW = 900, -500


class Lab:
    """A scheduler whose clock only moves when work is done."""

    def __init__(self, **options: float) -> None:
        self.now = 100.0
        self.done: list[str] = []
        # What the commit queue would say.
        self.group = 0
        self.scheduler = PriorityScheduler(
            LoadShedder(), lambda: self.now, open_group=lambda: self.group, **options
        )

    def work(self, name: str, takes_s: float) -> None:
        self.now += takes_s
        self.done.append(name)

    async def drained(self) -> None:
        while self.scheduler.held:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def offer(self, name: str, priority: int = LOW, *, takes_s: float = SHARE_S, size: int = 10) -> bool:
        """True when it was held; otherwise it is done by now, as a handler would."""
        work: Callable[[], None] = partial(self.work, name, takes_s)
        held = self.scheduler.holds(priority, size, work, patient=False)
        if not held:
            work()
        return held


def test_lower_priorities_take_turns_and_the_loop_goes_round_in_between() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        assert lab.scheduler.active
        assert [lab.offer(name) for name in "abcd"] == [False, True, True, True]
        for expected in ("a", "ab", "abc", "abcd"):
            assert "".join(lab.done) == expected
            await asyncio.sleep(0)
        assert lab.scheduler.held == 0

    asyncio.run(scenario())


def test_it_is_known_for_a_while_that_somebody_had_to_wait() -> None:
    async def scenario() -> None:
        lab = Lab(protect_s=0.02)
        lab.scheduler.protect(HIGH)
        lab.offer("a")
        assert not lab.scheduler.pacing
        lab.offer("b")
        assert lab.scheduler.pacing
        await lab.drained()
        assert lab.scheduler.pacing
        while lab.scheduler.active:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert not lab.scheduler.pacing

    asyncio.run(scenario())


def test_no_more_pass_than_may_be_answered_together() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        lab.group = 1
        for n in range(2 * MOST_IN_A_GROUP + 1):
            lab.offer(str(n), takes_s=0.0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(lab.done) == MOST_IN_A_GROUP
        lab.group = 2
        await asyncio.sleep(0)
        assert len(lab.done) == 2 * MOST_IN_A_GROUP
        # None is on its way any more, so there is no group to wait for.
        lab.group = 0
        await lab.drained()
        assert len(lab.done) == 2 * MOST_IN_A_GROUP + 1

    asyncio.run(scenario())


def test_small_work_shares_a_turn() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        for n in range(20):
            lab.offer(str(n), takes_s=SHARE_S / 3.5)
        assert len(lab.done) == 4
        await asyncio.sleep(0)
        assert len(lab.done) == 8

    asyncio.run(scenario())


def test_whoever_comes_later_waits_behind_those_who_wait() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        lab.offer("a")
        lab.offer("b")
        lab.now += 10 * SHARE_S
        assert lab.offer("c", takes_s=0.0)
        await lab.drained()
        assert lab.done == ["a", "b", "c"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("read", "written", "waits"),
    [
        (HIGH, HIGH, False),
        (HIGH, HIGH - GAP + 1, False),
        (HIGH, HIGH - GAP, True),
        (500, 499, False),
        (500, 250, True),
        (250, 0, True),
        (250, -1, True),
        (249, -1000, False),
    ],
)
def test_only_what_matters_much_less_waits(read: int, written: int, waits: bool) -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(read)
        lab.offer("first", written)
        assert lab.offer("second", written) is waits

    asyncio.run(scenario())


def test_protection_ends_when_nobody_reads_any_more() -> None:
    async def scenario() -> None:
        lab = Lab(protect_s=0.01)
        lab.scheduler.protect(HIGH)
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            while lab.scheduler.active:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not any(lab.offer(str(n)) for n in range(10))

    asyncio.run(scenario())


def test_when_the_most_important_reader_leaves_the_next_one_counts() -> None:
    async def scenario() -> None:
        lab = Lab(protect_s=0.01)
        lab.scheduler.protect(HIGH)
        lab.offer("first", 400)
        assert lab.offer("second", 400)
        await lab.drained()
        for _ in range(5):
            lab.scheduler.protect(500)
            await asyncio.sleep(0.01)
        assert lab.scheduler.active
        assert not any(lab.offer(str(n), 400) for n in range(3))
        lab.offer("third", LOW)
        assert lab.offer("fourth", LOW)

    asyncio.run(scenario())


def test_when_the_wait_would_be_long_more_work_is_refused_but_not_what_asked_to_wait() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        # Each of them takes a tenth of a second, and that is what the next ones have to expect.
        for _ in range(60):
            for name in "abc":
                lab.offer(name, takes_s=0.1)
            await lab.drained()
        lab.offer("first")
        with pytest.raises(ApiError) as refused:  # noqa: PT012
            for n in range(20):
                lab.offer(f"more {n}")
        assert 8 <= lab.scheduler.held <= 12
        assert refused.value.code == "throttled"
        assert refused.value.detail is not None
        assert 1000 < refused.value.detail["retry_after_ms"] < 1300
        assert refused.value.retry_after_s == 2
        assert lab.scheduler.holds(LOW, 10, partial(lab.work, "patient", 0.0), patient=True)
        await lab.drained()
        assert lab.done[-1] == "patient"

    asyncio.run(scenario())


def test_one_stall_of_the_machine_refuses_nobody() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        for name in "abc":
            lab.offer(name)
        lab.now += 3.0
        assert lab.offer("d")
        await lab.drained()
        assert "".join(lab.done) == "abcd"

    asyncio.run(scenario())


def test_what_waits_is_bounded_in_bytes() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.scheduler.protect(HIGH)
        lab.offer("a")
        assert lab.offer("b", size=MOST_HELD_BYTES - 10)
        assert lab.offer("c", size=10)
        with pytest.raises(ApiError):
            lab.offer("d", size=1)
        await lab.drained()
        assert lab.offer("e", size=10)
        assert lab.offer("f", size=MOST_HELD_BYTES - 10)

    asyncio.run(scenario())

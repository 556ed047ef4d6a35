"""Time that a request has the loop to itself: the longest step counts, and waiting does not."""

from __future__ import annotations

import asyncio

import pytest

from topics.core import holding
from topics.core.holding import Holds, TimedSteps


def test_each_step_is_timed_and_waiting_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(holding, "perf_counter", lambda: clock[0])
    holds, seen = Holds(), []

    async def handler() -> None:
        clock[0] += 2
        await asyncio.sleep(0)
        seen.append(holds.longest_s)
        clock[0] += 3
        await asyncio.sleep(0)
        seen.append(holds.longest_s)
        clock[0] += 1

    async def other() -> None:
        clock[0] += 100

    async def main() -> None:
        steps = asyncio.get_running_loop().create_task(TimedSteps(handler(), holds))
        await other()
        await steps

    asyncio.run(main())
    assert seen == [2, 3]
    assert holds.longest_s == 3


def test_what_a_handler_raises_and_how_it_is_cancelled() -> None:
    async def failing() -> None:
        raise ValueError("on purpose")

    async def waiting() -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="on purpose"):
            await loop.create_task(TimedSteps(failing(), Holds()))
        task = loop.create_task(TimedSteps(waiting(), Holds()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await TimedSteps(asyncio.sleep(0), Holds())

    asyncio.run(main())

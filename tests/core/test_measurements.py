"""Measurements: the longest step counts and waiting does not; bounds of distributions."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from topics.core import measurements
from topics.core.measurements import LATENCY_BOUNDS_S, Histogram, Holds, TimedSteps


def test_each_step_is_timed_and_waiting_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(measurements, "perf_counter", lambda: clock[0])
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
        inner = waiting()
        TimedSteps(inner, Holds()).close()
        assert inspect.getcoroutinestate(inner) == inspect.CORO_CLOSED
        await TimedSteps(asyncio.sleep(0), Holds())

    asyncio.run(main())


def test_a_value_on_a_bound_counts_for_it() -> None:
    histogram = Histogram((1.0, 2.5))
    for value in (0.5, 1.0, 1.1, 2.5, 2.6, 100.0):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [("1", 2), ("2.5", 4), ("+Inf", 6)]
    assert histogram.count == 6
    assert histogram.total == 107.7


def test_bounds_are_written_without_exponents() -> None:
    names = [bound for bound, _ in Histogram(LATENCY_BOUNDS_S).cumulative()]
    assert names[:4] == ["0.0001", "0.00025", "0.0005", "0.001"]
    assert names[-3:] == ["2.5", "10", "+Inf"]
    assert [float(name) for name in names[:-1]] == list(LATENCY_BOUNDS_S)

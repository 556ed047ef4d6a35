"""Load shedding in rising order, lowest priorities first, with a way back to calm."""

from __future__ import annotations

import asyncio
import time

import pytest

from topics.core.errors import ApiError
from topics.flow.load_shedder import (
    MAX_COMMIT_WINDOW_S,
    ONE_STALL_MS,
    QUIET_CPU_SHARE,
    QUIET_LAG_MS,
    SHED_BELOW,
    SMOOTHING,
    Level,
    LoadShedder,
)


def under(lag_ms: float, cpu_share: float = 0.0, queue_share: float = 0.0) -> LoadShedder:
    load_shedder = LoadShedder()
    for _ in range(100):
        load_shedder.observe(lag_ms, cpu_share, queue_share)
    return load_shedder


@pytest.mark.parametrize(
    ("measured", "least", "level"),
    [
        ("lag_ms", 20.0, Level.MERGE),
        ("lag_ms", 50.0, Level.WIDEN),
        ("lag_ms", 150.0, Level.DEFER),
        ("lag_ms", 500.0, Level.SHED),
        ("cpu_share", 0.9, Level.MERGE),
        ("queue_share", 0.25, Level.WIDEN),
        ("queue_share", 0.5, Level.DEFER),
    ],
)
def test_a_level_begins_with_its_bound(measured: str, least: float, level: Level) -> None:
    load_shedder = LoadShedder()
    setattr(load_shedder, measured, least)
    assert load_shedder.level == level
    setattr(load_shedder, measured, least * 0.999)
    assert load_shedder.level < level


@pytest.mark.parametrize(
    ("measured", "bound"),
    [("lag_ms", QUIET_LAG_MS), ("cpu_share", QUIET_CPU_SHARE), ("queue_share", QUIET_CPU_SHARE)],
)
def test_it_is_quiet_below_each_bound(measured: str, bound: float) -> None:
    load_shedder = LoadShedder()
    setattr(load_shedder, measured, bound * 0.999)
    assert load_shedder.is_quiet
    setattr(load_shedder, measured, bound)
    assert not load_shedder.is_quiet


@pytest.mark.parametrize(("lag_ms", "bound"), SHED_BELOW)
def test_refusals_begin_with_their_lag(lag_ms: float, bound: int) -> None:
    load_shedder = LoadShedder()
    load_shedder.lag_ms = lag_ms
    load_shedder.check(bound)
    with pytest.raises(ApiError):
        load_shedder.check(bound - 1)
    load_shedder.lag_ms = lag_ms * 0.999
    load_shedder.check(bound - 1)


@pytest.mark.parametrize(("late_ms", "retry_ms"), [(0.0, 250), (600.0, 600), (60_000.0, 5000)])
def test_whoever_is_refused_is_asked_back_within_bounds(late_ms: float, retry_ms: int) -> None:
    assert LoadShedder().refusal(late_ms).detail == {"retry_after_ms": retry_ms}


def test_the_longest_lag_is_kept_and_a_stall_counts_as_no_more_than_its_bound() -> None:
    load_shedder = LoadShedder()
    load_shedder.observe(2 * ONE_STALL_MS)
    assert load_shedder.lag_ms == SMOOTHING * ONE_STALL_MS
    load_shedder.observe(1.0)
    assert load_shedder.longest_lag_s == 2 * ONE_STALL_MS / 1000


def test_the_loop_is_measured() -> None:
    async def scenario() -> LoadShedder:
        load_shedder = LoadShedder(lambda: 0.5)
        load_shedder.start(asyncio.get_running_loop())
        deadline = time.monotonic() + 10
        while load_shedder.cpu_share < 0.05 and time.monotonic() < deadline:
            spent = time.thread_time() + 0.02
            while time.thread_time() < spent:
                pass
            await asyncio.sleep(0)
        load_shedder.stop()
        return load_shedder

    load_shedder = asyncio.run(scenario())
    assert 0.05 <= load_shedder.cpu_share <= 1.1
    assert 0 < load_shedder.queue_share <= 0.5


def test_a_quiet_loop_is_measured_a_few_times_a_second() -> None:
    samples: list[float] = []

    def measure_queue() -> float:
        samples.append(0.0)
        return 0.0

    async def scenario() -> None:
        load_shedder = LoadShedder(measure_queue)
        load_shedder.start(asyncio.get_running_loop())
        await asyncio.sleep(0.5)
        load_shedder.stop()

    asyncio.run(scenario())
    assert 1 <= len(samples) <= 10


def test_one_stall_refuses_nobody_however_long_and_several_do() -> None:
    load_shedder = LoadShedder()
    load_shedder.observe(60_000)
    load_shedder.check(-1000)
    for _ in range(3):
        load_shedder.observe(60_000)
    with pytest.raises(ApiError):
        load_shedder.check(249)


def test_commit_window_widens_and_stays_bounded() -> None:
    assert under(10).commit_window_s == 0
    assert 0 < under(100).commit_window_s < MAX_COMMIT_WINDOW_S
    assert under(10_000).commit_window_s == MAX_COMMIT_WINDOW_S


def test_a_loop_with_nothing_to_do_is_looked_at_less_often() -> None:
    assert LoadShedder().is_quiet
    assert under(0.0, 0.01).is_quiet
    for busy in (under(10.0), under(0.0, 0.5), under(0.0, 0.0, 0.5)):
        assert not busy.is_quiet
        for _ in range(100):
            busy.observe(0.0)
        assert busy.is_quiet

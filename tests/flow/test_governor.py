"""Load shedding in rising order, lowest priorities first, with a way back to calm."""

from __future__ import annotations

import asyncio
import time

import pytest

from topics.flow.governor import MAX_COMMIT_WINDOW_S, Governor, Level
from topics.values.errors import ApiError


def under(lag_ms: float) -> Governor:
    governor = Governor()
    for _ in range(100):
        governor.observe(lag_ms)
    return governor


@pytest.mark.parametrize(
    ("lag_ms", "level"),
    [(0, Level.CALM), (30, Level.MERGE), (80, Level.WIDEN), (200, Level.DEFER), (600, Level.SHED)],
)
def test_levels_rise_with_the_lag(lag_ms: float, level: Level) -> None:
    assert under(lag_ms).level == level


def test_one_late_turn_is_not_pressure() -> None:
    governor = Governor()
    governor.observe(200)
    assert governor.level < Level.DEFER


def test_commit_window_widens_and_stays_bounded() -> None:
    assert under(10).commit_window_s == 0
    assert 0 < under(100).commit_window_s < MAX_COMMIT_WINDOW_S
    assert under(10_000).commit_window_s == MAX_COMMIT_WINDOW_S


def test_only_negative_priorities_are_deferred() -> None:
    governor = under(200)
    assert governor.defers(-1)
    assert not governor.defers(0)
    assert not under(10).defers(-1)


@pytest.mark.parametrize(("lag_ms", "refused", "served"), [(600, -1, 0), (1200, 249, 250), (2500, 749, 750)])
def test_low_priorities_are_refused_first(lag_ms: float, refused: int, served: int) -> None:
    governor = under(lag_ms)
    governor.check(served)
    with pytest.raises(ApiError) as caught:
        governor.check(refused)
    assert caught.value.code == "throttled"
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 1
    assert caught.value.detail is not None
    assert caught.value.detail["retry_after_ms"] > 0


def test_in_the_end_nobody_is_spared() -> None:
    with pytest.raises(ApiError):
        under(5000).check(1000)


def test_calm_comes_back() -> None:
    governor = under(600)
    for _ in range(50):
        governor.observe(0)
    governor.check(-1000)
    assert governor.level == Level.CALM


def test_a_blocked_loop_is_measured() -> None:
    async def main() -> float:
        governor = Governor()
        governor.start(asyncio.get_running_loop())
        time.sleep(0.3)  # noqa: ASYNC251 - a blocked loop is the point
        await asyncio.sleep(0.02)
        governor.stop()
        return governor.lag_ms

    assert asyncio.run(main()) > 20

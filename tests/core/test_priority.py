"""Effective priority: manual values are clamped, automatic ones fade by half every thirty seconds."""

from __future__ import annotations

import pytest

from topics.core.config import TopicConfig, effective_priority

READ_AT = 1_000_000


@pytest.mark.parametrize(
    ("idle_s", "expected"),
    [(0, 500), (15, 354), (30, 250), (60, 125), (90, 63), (120, 31), (299.999, 0), (300, 0), (10_000, 0)],
)
def test_it_fades_since_the_last_read(idle_s: float, expected: int) -> None:
    assert effective_priority(TopicConfig(), READ_AT, READ_AT + int(idle_s * 1000)) == expected


def test_a_clock_set_back_counts_as_just_now() -> None:
    assert effective_priority(TopicConfig(), READ_AT, READ_AT - 5000) == 500


def test_never_read_or_switched_off_is_nothing() -> None:
    assert effective_priority(TopicConfig(), None, READ_AT) == 0
    assert effective_priority(TopicConfig(auto_priority=False), READ_AT, READ_AT) == 0


@pytest.mark.parametrize(("given", "expected"), [(7, 7), (0, 0), (5000, 1000), (-5000, -1000)])
def test_a_manual_value_wins(given: int, expected: int) -> None:
    assert effective_priority(TopicConfig(priority=given), READ_AT, READ_AT) == expected

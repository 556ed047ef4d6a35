"""Why each seq below the floor is gone, in as few ranges as there are reasons."""

from __future__ import annotations

import random

import pytest

from topics.log.remove import ledger as module
from topics.log.remove.ledger import CAP, DELETED, TTL, Ledger


def test_neighbours_that_went_the_same_way_are_one_range() -> None:
    ledger = Ledger()
    for first, last, kind in ((1, 3, CAP), (4, 4, CAP), (5, 4, TTL), (5, 6, DELETED), (8, 9, DELETED)):
        ledger.add(first, last, kind)
    assert list(ledger.ranges()) == [(1, 4, CAP), (5, 6, DELETED), (8, 9, DELETED)]


def test_only_what_is_in_it_has_a_reason() -> None:
    ledger = Ledger()
    assert ledger.kind_of(1) is None
    ledger.add(2, 3, CAP)
    ledger.add(5, 6, TTL)
    assert [ledger.kind_of(seq) for seq in range(1, 8)] == [None, CAP, CAP, None, TTL, TTL, None]


def test_what_is_dumped_can_be_loaded() -> None:
    ledger, other = Ledger(), Ledger()
    ledger.add(1, 3, CAP)
    ledger.add(4, 9, TTL)
    other.add(7, 7, DELETED)
    other.load(ledger.dump())
    assert list(other.ranges()) == [(1, 3, CAP), (4, 9, TTL)]
    other.add(10, 11, TTL)
    assert list(other.ranges())[-1] == (4, 11, TTL)


def test_the_oldest_ranges_are_told_with_less_detail_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert module.MAX_RANGES == 1 << 20
    monkeypatch.setattr(module, "MAX_RANGES", 8)
    ledger, truth = Ledger(), {}
    rng = random.Random(5)
    first, kind = 1, CAP
    for _ in range(500):
        last = first + rng.randrange(3)
        kind = rng.choice([other for other in (DELETED, CAP, TTL) if other != kind])
        truth |= dict.fromkeys(range(first, last + 1), kind)
        ledger.add(first, last, kind)
        first = last + 1
        ranges = list(ledger.ranges())
        assert len(ranges) <= 8
        # Every seq is still told of, in order, and none that was lost is called deleted.
        assert [seq for begin, end, _ in ranges for seq in range(begin, end + 1)] == list(truth)
        assert all(why or not truth[seq] for begin, end, why in ranges for seq in range(begin, end + 1))
        # The newest are as they were.
        for begin, end, why in ranges[-4:]:
            assert {truth[seq] for seq in range(begin, end + 1)} == {why}


def test_as_many_ranges_as_are_allowed_are_told_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RANGES", 4)
    ledger = Ledger()
    for first in (1, 3, 5, 7):
        ledger.add(first, first, CAP)
    assert len(ledger.kinds) == 4
    ledger.add(9, 9, CAP)
    assert list(ledger.ranges()) == [(1, 3, CAP), (5, 5, CAP), (7, 7, CAP), (9, 9, CAP)]

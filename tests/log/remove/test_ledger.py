"""Why each seq below the floor is gone, in as few ranges as there are reasons."""

from __future__ import annotations

from topics.log.remove.ledger import CAP, DELETED, TTL, Ledger


def test_neighbours_that_went_the_same_way_are_one_range() -> None:
    ledger = Ledger()
    for first, last, kind in ((1, 3, CAP), (4, 4, CAP), (5, 4, TTL), (5, 6, DELETED), (8, 9, DELETED)):
        ledger.add(first, last, kind)
    assert list(ledger.ranges()) == [(1, 4, CAP), (5, 6, DELETED), (8, 9, DELETED)]


def test_what_is_dumped_can_be_loaded() -> None:
    ledger, other = Ledger(), Ledger()
    ledger.add(1, 3, CAP)
    ledger.add(4, 9, TTL)
    other.add(7, 7, DELETED)
    other.load(ledger.dump())
    assert list(other.ranges()) == [(1, 3, CAP), (4, 9, TTL)]
    other.add(10, 11, TTL)
    assert list(other.ranges())[-1] == (4, 11, TTL)

"""Where a topic stands: lines only rise, holes are told once, seqs are reserved before they are given out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topics.log import watermarks as module
from topics.log.remove import ledger
from topics.log.watermarks import FIRST_STEP, LARGEST_STEP, Watermarks


@pytest.fixture
def marks() -> Watermarks:
    """A topic with the number 7 that has given out and shown ten seqs."""
    marks = Watermarks(7, 1, set())
    marks.skip_to(10)
    marks.head = 10
    return marks


@pytest.mark.parametrize("kind", [ledger.CAP, ledger.TTL, ledger.TRIM, ledger.LOST])
def test_a_line_never_falls(marks: Watermarks, kind: int) -> None:
    marks.raise_line(kind, 5)
    marks.raise_line(kind, 3)
    assert marks.loss_line == 6
    marks.raise_line(kind, 99)
    assert marks.loss_line == marks.head + 1


def test_only_lines_that_replay_cannot_find_have_to_be_noted(marks: Watermarks) -> None:
    marks.raise_line(ledger.TTL, 2)
    assert not marks.ttl_unnoted
    marks.raise_line(ledger.TTL, 3, unnoted=True)
    marks.raise_line(ledger.TTL, 4)
    assert marks.ttl_unnoted
    marks.lines_noted()
    assert not marks.ttl_unnoted


def test_the_floor_never_falls(marks: Watermarks) -> None:
    marks.raise_floor(5, 1000)
    marks.raise_floor(3)
    assert (marks.floor, marks.floor_ts) == (5, 1000)


def test_a_hole_inside_waits_for_its_reader_and_one_in_front_moves_the_line(marks: Watermarks) -> None:
    marks.note_hole(4, 5, ledger.LOST, interior=True)
    assert (marks.loss_line, marks.hole_after(3)) == (1, marks.holes[0])
    assert marks.hole_after(5) is None
    marks.note_hole(1, 2, ledger.TRIM, interior=False)
    assert (marks.trim_hi, marks.loss_line) == (2, 3)
    assert [hole.first for hole in marks.holes] == [1, 4]


def test_holes_that_follow_each_other_are_one(marks: Watermarks) -> None:
    marks.note_hole(4, 5, ledger.LOST, interior=True)
    marks.note_hole(6, 7, ledger.LOST, interior=True)
    marks.note_hole(8, 8, ledger.TRIM, interior=True)
    assert [(hole.first, hole.last) for hole in marks.holes] == [(4, 7), (8, 8)]


@pytest.mark.parametrize("kind", [ledger.CAP, ledger.TTL])
def test_a_loss_that_passes_a_hole_takes_it_into_the_front_gap(marks: Watermarks, kind: int) -> None:
    marks.note_hole(4, 5, ledger.LOST, interior=True)
    marks.raise_line(kind, 4)
    assert marks.holes[0].interior
    marks.raise_line(kind, 5)
    assert (marks.holes[0].interior, marks.lost_hi) == (False, 5)


def test_reservations_double_up_to_a_limit(marks: Watermarks) -> None:
    steps = []
    for _ in range(14):
        before = marks.reserve_asked
        steps.append(marks.ask_reservation(before) - before)
    assert steps[:3] == [2 * FIRST_STEP, 4 * FIRST_STEP, 8 * FIRST_STEP]
    assert steps[-1] == LARGEST_STEP


def test_what_is_asked_for_counts_once_the_journal_has_it(marks: Watermarks) -> None:
    upto = marks.ask_reservation(10)
    assert (marks.reserved, marks.reserve_asked) == (0, upto)
    marks.withdraw_reservation()
    assert marks.reserve_asked == 0
    marks.reserve(upto)
    marks.reserve(5)
    assert (marks.reserved, marks.reserve_asked) == (upto, upto)


def test_a_rewind_forgets_everything_above(marks: Watermarks) -> None:
    marks.reserve(1000)
    marks.raise_line(ledger.CAP, 2)
    marks.raise_delete_line(9)
    marks.note_hole(4, 8, ledger.LOST, interior=True)
    marks.note_hole(9, 9, ledger.TRIM, interior=True)
    marks.ledger.add(1, 9, ledger.DELETED)
    marks.raise_floor(10)
    marks.rewind(6)
    assert (marks.head, marks.assigned, marks.reserved, marks.reserve_asked) == (6, 6, 6, 6)
    assert (marks.floor, marks.cap_hi, marks.delete_below) == (7, 2, 7)
    assert [(hole.first, hole.last) for hole in marks.holes] == [(4, 6)]
    assert list(marks.ledger.ranges()) == [(1, 6, ledger.DELETED)]


@pytest.mark.parametrize(
    "change",
    [
        lambda marks: marks.reserve(1000),
        lambda marks: marks.raise_line(ledger.CAP, 5),
        lambda marks: marks.raise_delete_line(5),
        lambda marks: marks.note_hole(4, 5, ledger.LOST, interior=True),
        lambda marks: marks.rewind(6),
    ],
    ids=["reserve", "raise_line", "raise_delete_line", "note_hole", "rewind"],
)
def test_a_changed_topic_is_captured_again(marks: Watermarks, change: Callable[[Watermarks], object]) -> None:
    marks.changed.clear()
    change(marks)
    assert marks.changed == {7}


def test_seqs_and_times_that_were_given_out_are_not_given_out_again(marks: Watermarks) -> None:
    marks.skip_to(12, 500)
    marks.skip_to(11, 400)
    assert (marks.assigned, marks.last_ts) == (12, 500)


def test_a_hole_is_captured_with_its_hops_only_if_routers_brought_it(marks: Watermarks) -> None:
    marks.note_hole(4, 5, ledger.LOST, interior=True)
    marks.note_hole(6, 6, ledger.LOST, interior=True, hops=2)
    assert [hole.capture() for hole in marks.holes] == [
        (4, 5, ledger.LOST, True),
        (6, 6, ledger.LOST, True, 2),
    ]


def test_holes_in_front_of_everything_become_one_when_there_are_too_many(
    marks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.MAX_HOLES == 100_000
    monkeypatch.setattr(module, "MAX_HOLES", 5)
    for first in range(2, 22, 2):
        marks.note_hole(first, first, ledger.TRIM, interior=False)
        assert len(marks.holes) <= 5
    assert [(hole.first, hole.last) for hole in marks.holes] == [
        (2, 12),
        (14, 14),
        (16, 16),
        (18, 18),
        (20, 20),
    ]
    # One inside lies between records that can be read: it stays.
    for first in range(22, 32, 2):
        marks.note_hole(first, first, ledger.LOST, interior=True)
    assert [hole.first for hole in marks.holes if hole.interior] == [22, 24, 26, 28, 30]
    assert [(hole.first, hole.last) for hole in marks.holes if not hole.interior] == [(2, 20)]


@pytest.mark.parametrize("kinds", [(ledger.TRIM, ledger.LOST), (ledger.LOST, ledger.TRIM)])
def test_holes_that_become_one_have_the_graver_kind(
    marks: Watermarks, monkeypatch: pytest.MonkeyPatch, kinds: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "MAX_HOLES", 1)
    marks.note_hole(2, 2, kinds[0], interior=False)
    marks.note_hole(4, 4, kinds[1], interior=False)
    assert [(hole.first, hole.last, hole.kind) for hole in marks.holes] == [(2, 4, ledger.LOST)]


def test_only_holes_inside_and_above_are_found(marks: Watermarks) -> None:
    for first in range(2, 2000, 2):
        marks.note_hole(first, first, ledger.LOST, interior=True)
    marks.raise_line(ledger.CAP, 1001)
    found = marks.hole_after(0)
    assert found is not None
    assert (found.first, marks.lost_hi) == (1002, 1000)
    assert marks.hole_after(1998) is None

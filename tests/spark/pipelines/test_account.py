"""Accounts: what counts as explained, and what does not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyspark_topics.offsets import Range, SeqSet
from pyspark_topics.pipelines.audit import (
    INVENTED,
    NOT_THERE,
    PASSED,
    ArchivedSeqs,
    LoggedSeqs,
    account,
    runs_of,
)


def seqs(*ranges: tuple[int, int]) -> SeqSet:
    return SeqSet.of(ranges)


def test_a_hole_that_was_not_announced() -> None:
    found = account("t", 7, ArchivedSeqs(), LoggedSeqs(1, 5, seqs((1, 2), (4, 5)), {}))
    assert found.unexplained == {NOT_THERE: seqs((3, 3))}
    assert not found.ok


def test_loss_that_the_archive_was_not_told_of() -> None:
    logged = LoggedSeqs(1, 5, seqs((3, 5)), {"cap": seqs((1, 2))})
    assert account("t", 7, ArchivedSeqs(seqs((3, 5)), 3, seqs(), 5), logged).unexplained == {
        PASSED: seqs((1, 2))
    }
    assert account("t", 7, ArchivedSeqs(seqs((3, 5)), 3, seqs((1, 2)), 5), logged).ok


def test_what_the_log_never_gave_out() -> None:
    """As after a restore from an old backup."""
    found = account("t", 7, ArchivedSeqs(seqs((1, 5)), 5, seqs(), 5), LoggedSeqs(1, 3, seqs((1, 3)), {}))
    assert found.unexplained == {INVENTED: seqs((4, 5))}


def test_rows_that_are_there_twice() -> None:
    found = account("t", 7, ArchivedSeqs(seqs((1, 3)), 4, seqs(), 3), LoggedSeqs(1, 3, seqs((1, 3)), {}))
    assert not found.unexplained
    assert found.repeated_rows == 1
    assert not found.ok


def test_a_log_need_not_begin_at_one() -> None:
    assert account("t", 7, ArchivedSeqs(), LoggedSeqs(100, 101, seqs((100, 101)), {})).seqs == 2


# --- sets of seqs: the same as sets of numbers, in fewer words ------------------------------------------

RANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), max_size=8)


def members(ranges: list[Range]) -> set[int]:
    return {seq for first, last in ranges for seq in range(first, last + 1)}


@given(RANGES, RANGES)
def test_operations_are_those_of_sets(a: list[Range], b: list[Range]) -> None:
    left, right = SeqSet.of(a), SeqSet.of(b)
    for found, expected in (
        (left, members(a)),
        (left | right, members(a) | members(b)),
        (left - right, members(a) - members(b)),
        (left & right, members(a) & members(b)),
    ):
        assert members(list(found.ranges)) == expected
        assert found.count == len(expected)
        assert found == SeqSet.of(found.ranges)  # in its one form: sorted, merged, nothing empty
        assert bool(found) == bool(expected)


@given(st.lists(st.integers(1, 60)))
def test_runs_of_numbers(seqs: list[int]) -> None:
    found = runs_of(np.array(seqs, np.int64))
    assert members(found) == set(seqs)
    assert tuple(found) == SeqSet.of(found).ranges

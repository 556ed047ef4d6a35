"""Sets of seqs: the same as sets of numbers, in fewer words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyspark_topics.pipelines.seqsets import Range, SeqSet, runs_of

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

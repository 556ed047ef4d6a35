"""Flat columns in few bytes: where rows end, names as codes, and columns that appear late."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.log.harness import Lab
from topics.log.packing import Names, PackedEnds, copied, grow, grow_codes, whole_codes


@given(st.lists(st.sampled_from([1, 100, 65_535, 65_536, 65_537, 1_000_000]), max_size=30))
def test_packed_offsets_are_the_same_offsets(lengths: list[int]) -> None:
    ends = array("I", accumulate(lengths))
    packed = PackedEnds(ends)
    assert len(packed) == len(ends)
    assert [packed[index] for index in range(len(ends))] == ends.tolist()
    assert packed.whole().tolist() == ends.tolist()
    assert packed.whole().dtype == np.uint32
    assert packed.unpacked() == ends


def test_a_complete_run_keeps_its_offsets_packed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(hot_bytes=10**6)
    lab.write_each("t", 6)
    runs = [run.hot for run in lab.topic("t").runs]
    assert [isinstance(columns.ends, PackedEnds) for columns in runs if columns is not None] == [True, False]


def test_names_are_coded_in_the_order_in_which_they_come() -> None:
    names = Names()
    assert names.encode(["b", None, "a", "b"]) == array("B", [1, 0, 2, 1])
    names.close(4)
    assert names.encode(["a", "c"]) == array("B", [2, 3])
    assert names.names == ["b", "a", "c"]


def test_names_may_come_in_any_sequence() -> None:
    assert Names().encode(("b", None, "b")) == array("B", [1, 0, 1])


def test_a_column_is_copied_as_far_as_it_is_wanted() -> None:
    assert copied(None, 2) is None
    assert copied(np.array([7, 8, 9], np.uint32), 2) == array("I", [7, 8])


def test_columns_that_appear_late_have_zeros_before() -> None:
    column = grow(None, 2, array("I", [7]).tobytes(), 1)
    assert grow(column, 3, None, 2).tolist() == [0, 0, 7, 0, 0]


def test_codes_are_as_wide_as_the_highest_needs() -> None:
    widths, column, names = [], None, Names()
    for number in (255, 1, (1 << 16) - 256, 1):
        added = names.encode([f"{len(names.names) + new}" for new in range(number)])
        widths.append(added.itemsize)
        column = grow_codes(column, 1, added, number)
    assert column is not None
    column = grow_codes(column, len(column), None, 1)
    # A run may go on with names of its own, whose codes are narrower.
    column = grow_codes(column, len(column), Names().encode(["x"]), 1)
    assert (widths, column.itemsize) == ([1, 2, 4, 4], 4)
    codes = whole_codes(column)
    assert codes is not None
    assert (codes.tolist(), codes.dtype) == ([0, *range(1, (1 << 16) + 2), 0, 1], np.uint32)

"""Flat columns in few bytes: where rows end, names as codes, and columns that appear late."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.log.harness import Lab
from topics.log.packing import Names, PackedEnds, grow, grow_codes, whole_codes


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
    assert names.encode(["b", None, "a", "b"]) == [1, 0, 2, 1]
    names.close(4)
    assert names.encode(["a", "c"]) == [2, 3]
    assert names.names == ["b", "a", "c"]


def test_columns_that_appear_late_have_zeros_before() -> None:
    column = grow(None, 2, [7], 1)
    assert grow(column, 3, None, 2).tolist() == [0, 0, 7, 0, 0]


def test_codes_are_as_wide_as_the_highest_needs() -> None:
    column = grow_codes(None, 1, [255], 1, 255)
    assert column.itemsize == 1
    column = grow_codes(column, 2, [256], 1, 256)
    assert column.itemsize == 2
    column = grow_codes(column, 3, [1 << 16], 1, 1 << 16)
    column = grow_codes(column, 4, None, 1, 1 << 16)
    assert column.itemsize == 4
    codes = whole_codes(column)
    assert codes is not None
    assert (codes.tolist(), codes.dtype) == ([0, 255, 256, 65536, 0], np.uint32)

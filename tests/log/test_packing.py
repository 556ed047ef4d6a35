"""Flat columns in few bytes: where rows end, names as codes, and columns that appear late."""

from __future__ import annotations

from array import array
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topics.log.packing import Names, PackedEnds, grow_codes, whole_codes


@given(st.lists(st.sampled_from([1, 100, 65_535, 65_536, 65_537, 1_000_000]), max_size=30))
def test_packed_offsets_are_the_same_offsets(lengths: list[int]) -> None:
    ends = array("I", accumulate(lengths))
    packed = PackedEnds(ends)
    assert len(packed) == len(ends)
    assert [packed[index] for index in range(len(ends))] == ends.tolist()
    assert packed.whole().tolist() == ends.tolist()
    assert packed.whole().dtype == np.uint32
    assert packed.unpacked() == ends


def test_names_are_coded_in_the_order_in_which_they_come() -> None:
    names = Names()
    assert names.encode(["b", None, "a", "b"]) == array("B", [1, 0, 2, 1])
    names.close(4)
    assert names.encode(["a", "c"]) == array("B", [2, 3])
    assert names.names == ["b", "a", "c"]


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

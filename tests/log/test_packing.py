"""Flat columns in few bytes: where rows end, names as codes, and columns that appear late."""

from __future__ import annotations

from array import array
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topics.log.packing import Names, PackedEnds


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
    assert names.extend(1, ["b", None, "a", "b"], 4) == 2
    names.close(5)
    assert names.extend(5, ("a", "c"), 2) == 1
    assert names.names == ["b", "a", "c"]
    assert names.codes == array("B", [0, 1, 0, 2, 1, 2, 3])
    assert names.between(3, 7) == ["a", "b", "a", "c"]


def test_codes_are_as_wide_as_the_highest_needs() -> None:
    widths, names, count = [], Names(), 1
    assert (names.extend(1, None, 3), names.codes) == (0, None)
    for number in (255, 1, (1 << 16) - 256, 1):
        names.extend(count, [f"{len(names.names) + new}" for new in range(number)], number)
        count += number
        assert names.codes is not None
        widths.append(names.codes.itemsize)
    names.extend(count, None, 1)
    assert widths == [1, 2, 4, 4]
    codes, _ = names.view()
    assert codes is not None
    assert (codes.tolist(), codes.dtype) == ([0, *range(1, (1 << 16) + 2), 0], np.uint32)

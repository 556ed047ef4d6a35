"""Rows in the shape a reader asked for, cut and joined from the stored ones."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.harness import T0, Lab, records
from tests.support.appending import rows_of
from topics.log.read.render import STORED, Shape, gather, gather_alive
from topics.log.run import HotColumns

pytestmark = pytest.mark.usefixtures("both_codecs")

# Text that looks like the parts of a row.
TRICKY = '"data":1,"meta":{'


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.write(
        "t",
        {"data": TRICKY, "tag": "a", "node": "n", "meta": {"m": TRICKY}},
        {"data": {"x": [1, 2]}},
        {"data": None, "tag": '"b"'},
        {"data": 3, "meta": {"k": "v"}},
        {"data": "deleted", "tag": "gone"},
        {"data": 6, "node": "n"},
    )
    lab.delete("t", match="gone")
    return lab


EXPECTED = [
    {"$seq": 1, "$ts": T0, "$node": "n", "$tag": "a", "data": TRICKY, "meta": {"m": TRICKY}},
    {"$seq": 2, "$ts": T0, "data": {"x": [1, 2]}},
    {"$seq": 3, "$ts": T0, "$tag": '"b"', "data": None},
    {"$seq": 4, "$ts": T0, "data": 3, "meta": {"k": "v"}},
    {"$seq": 6, "$ts": T0, "$node": "n", "data": 6},
]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("tags", "meta", "data"), [*product([False, True], repeat=3)])
def test_a_reader_gets_the_parts_it_asked_for(
    lab: Lab, tags: bool, meta: bool, data: bool, sealed: bool
) -> None:
    if sealed:
        lab.checkpoint(everything=True)
    left_out = {key for key, wanted in (("$tag", tags), ("meta", meta), ("data", data)) if not wanted}
    page = lab.diff("t", shape=Shape(tags=tags, meta=meta, data=data))
    expected = [{k: v for k, v in row.items() if k not in left_out} for row in EXPECTED]
    assert records(page) == expected
    # Key order is part of the wire, and there is no white space.
    lines = page.rows.decode().splitlines()
    assert lines == [json.dumps(row, separators=(",", ":")) for row in expected]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([1, 3, 30, 20_000, 70_000, 140_000]), min_size=1, max_size=40),
    closed=st.booleans(),
    data=st.data(),
)
def test_what_is_not_deleted_is_gathered_the_same_way_at_once(
    sizes: list[int], closed: bool, data: st.DataObject
) -> None:
    hot, count = HotColumns(1), len(sizes)
    hot.extend(rows_of([b'"%b"' % (b"x" * size) for size in sizes], 1, 7))
    if closed:
        hot.close()
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    dead = bytearray(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    room, budget = data.draw(st.integers(1, 45)), data.draw(st.sampled_from([1000, 100_000, 10**9]))
    columns = hot.view()
    assert hot.edges(start, stop).tolist() == [columns.start_of(at) for at in range(start, stop + 1)]
    found = gather_alive(hot, dead, start, stop, room, budget)
    alive = [at for at in range(start, stop) if not dead[at]][:room]
    if found is None:
        few = sum(not mark for mark in dead[start : min(stop, start + 2 * room)]) < room
        assert few or columns.start_of(alive[-1] + 1) - columns.start_of(start) > budget
    else:
        assert found == (gather(columns, np.array(alive), STORED), alive[-1] + 1)


def test_what_is_gathered_ends_where_the_stretch_does_and_fits_the_budget() -> None:
    hot = HotColumns(1)
    hot.extend(rows_of([b"1"] * 8, 1, 7))
    columns, dead = hot.view(), bytearray(8)
    size = columns.start_of(3)
    assert gather_alive(hot, dead, 0, 3, 3, size) == (gather(columns, np.arange(3), STORED), 3)
    assert gather_alive(hot, dead, 0, 3, 3, size - 1) is None
    dead[1] = 1
    assert gather_alive(hot, dead, 0, 3, 3, 10**9) is None

"""Rows in the shape a reader asked for, cut and joined from the stored ones."""

from __future__ import annotations

import json
from itertools import product

import pytest

from tests.log.harness import T0, Lab, records
from topics.log.read.render import Shape

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

"""Runs in memory: room made ahead of need changes where rows lie, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.log.harness import Lab, records
from topics.log.batch import batch_from_columns
from topics.log.run import HotColumns

# Four of these make a run large enough for the next one to be given room.
LARGE = "x" * 20_000


def hot(lab: Lab) -> HotColumns:
    columns = lab.topic("t").runs[-1].hot
    assert columns is not None
    return columns


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.write("t", *[LARGE] * 4)
    lab.write("t", LARGE)
    assert len(hot(lab).rows) > hot(lab).size, "there is room"
    return lab


def contents(lab: Lab) -> list[object]:
    return [record["data"] for record in records(lab.diff("t"))]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([LARGE], id="as expected"),
        pytest.param(["y"], id="less than expected"),
        pytest.param([LARGE + LARGE, "y"], id="more than expected"),
        pytest.param([LARGE * 3, LARGE, "y"], id="much more"),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_rows_are_the_same_with_room_and_without(lab: Lab, later: list[str], sealed: bool) -> None:
    for one in later:
        lab.write("t", one)
    expected = [LARGE] * 5 + later
    assert contents(lab) == expected
    if sealed:
        lab.checkpoint(everything=True)
        assert contents(lab) == expected
    lab.restart()
    assert contents(lab) == expected


def test_the_columns_end_where_the_rows_do(lab: Lab) -> None:
    columns = hot(lab).view(5)
    assert len(columns.rows) == hot(lab).size == int(columns.ends[-1])
    assert bytes(columns.rows).endswith(b"}\n")


@pytest.mark.parametrize("room", [0, 1000])
def test_what_is_taken_back_leaves_its_room(room: int) -> None:
    columns, batch = HotColumns(room), batch_from_columns([b"1", b"2"], None, None, None)
    for first in (1, 3):
        columns.extend(batch, batch.render(first, 5), 5)
    weight = columns.weight
    assert columns.truncate(2) == weight - columns.weight
    columns.extend(batch, batch.render(3, 5), 5)
    assert columns.weight == weight
    rows = bytes(columns.view(1).rows).splitlines()
    assert [row[8:9] for row in rows] == [b"1", b"2", b"3", b"4"]
    assert np.array_equal(columns.view(1).ends, np.cumsum([len(row) + 1 for row in rows]))


def test_small_runs_get_no_room(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write_each("t", 6)
    assert len(hot(lab).rows) == hot(lab).size

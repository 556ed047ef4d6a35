"""A slice of what `python -m tests.model.traffic` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.traffic import WAYS, drive
from tests.support import sanitised

TURNS = {"native": 90, "python": 60, "sanitised": 45}


def a_way(way: str) -> str:
    if way == "sanitised" and sanitised.library() is None:
        pytest.skip("no C compiler with AddressSanitizer")
    return way


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_what_comes_in_one_turn_is_answered_as_if_one_had_come_after_the_other(
    tmp_path: Path, way: str
) -> None:
    counts = drive(tmp_path, a_way(way), TURNS[way], seed=7)
    assert counts is not None
    assert min(counts["deduped"], counts["woken"], counts["400"], counts["other 200"]) > 0, counts


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_so_it_is_on_a_disk_that_runs_full(tmp_path: Path, way: str) -> None:
    counts = drive(tmp_path, a_way(way), TURNS[way], seed=8, small_disk=True)
    if counts is None:
        pytest.skip("only root may mount a small file system")
    assert counts["507"] > 0, counts

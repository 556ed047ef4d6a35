"""One step after the other: everybody gets a turn, and the journal gets no more frames than records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.flow.routers import step_size as slices_module
from topics.flow.routers.step_size import STEP_COPIES, STEP_ROWS_MIN, in_slices, step_rows


@given(routers=st.integers(1, 5000), records=st.integers(1, 3000))
def test_everybody_is_in_one_slice_and_slices_are_no_more_than_records(routers: int, records: int) -> None:
    # Who they are does not matter here.
    everybody: list[Any] = list(range(routers))
    slices = list(in_slices(everybody, records))
    assert [router for some in slices for router in some] == everybody
    assert len(slices) <= records
    largest = max(map(len, slices))
    moved = largest * min(records, step_rows(largest))
    # As large as a step may be, unless one more slice would be one more than there are records.
    assert moved <= 2 * STEP_COPIES or len(slices) == records or largest == 1


@pytest.mark.parametrize(
    ("routers", "rows"), [(1, 5000), (100, 50), (300, STEP_ROWS_MIN), (1000, STEP_ROWS_MIN)]
)
def test_few_routers_take_more_records_at_a_time(routers: int, rows: int) -> None:
    assert step_rows(routers) == rows


def test_a_lone_record_is_one_step_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices_module, "STEP_COPIES", 10)
    everybody: list[Any] = [None] * 1000
    assert [len(some) for some in in_slices(everybody, 1)] == [1000]
    assert [len(some) for some in in_slices(everybody, 2)] == [500, 500]

"""The moments in which timers meet."""

from __future__ import annotations

import pytest

from topics.core.clock import until_next


@pytest.mark.parametrize("every_s", [0.2, 1.0])
@pytest.mark.parametrize("now_s", [0.0, 0.03, 7.11, 86_399.97, 1234.2, 1234.1999999])
def test_what_looks_around_regularly_meets_in_the_same_moments(every_s: float, now_s: float) -> None:
    left_s = until_next(every_s, now_s)
    # Not twice in the same moment, whatever a division leaves.
    assert every_s / 10 < left_s <= every_s * 1.1
    assert (now_s + left_s) / every_s == pytest.approx(round((now_s + left_s) / every_s), abs=1e-6)

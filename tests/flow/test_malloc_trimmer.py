"""When memory goes back to the system: some time after the last burst; under a steady load, now and then."""

from __future__ import annotations

import pytest

from topics.flow.malloc_trimmer import LONGEST_S, MUCH_WORK_S, REST_S, MallocTrimmer


@pytest.mark.parametrize("less", [0, 0.01])
def test_some_time_after_much_was_done(less: float) -> None:
    freed, worked_s = MallocTrimmer(), MUCH_WORK_S - less
    assert not freed.is_due(100, worked_s)
    assert not freed.is_due(100 + REST_S - 0.1, worked_s)
    assert freed.is_due(100 + REST_S, worked_s) is not bool(less)
    assert not freed.is_due(1000, worked_s)


def test_while_much_is_done_it_is_kept_for_that_but_not_for_ever() -> None:
    freed = MallocTrimmer()
    due = [second for second in range(130) if freed.is_due(second, (second + 1) * MUCH_WORK_S)]
    assert due == [LONGEST_S, 2 * LONGEST_S + 1]


def test_a_little_work_now_and_then_does_not_keep_it() -> None:
    freed = MallocTrimmer()
    due = [second for second in range(25) if freed.is_due(second, MUCH_WORK_S * (1 if second < 20 else 1.5))]
    assert due == [REST_S]

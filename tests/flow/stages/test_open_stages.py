"""Parts that wait for their commit have a bound, and an end."""

from __future__ import annotations

import pytest

from tests.flow.stages.lab import StageLab
from topics.core.errors import ApiError
from topics.flow.stages import open_stages as module
from topics.flow.stages.open_stages import IDLE_MS, MAX_PARTS


def test_an_owner_has_so_many_parts_at_most(lab: StageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PARTS == 100_000
    monkeypatch.setattr(module, "MAX_PARTS", 2)
    rows = {"data": ["1"]}
    lab.part("0", rows, topic="a")
    with pytest.raises(ApiError):
        lab.part("1", {"data": ["{"]}, topic="a")
    lab.part("0", rows, topic="a", stage="other")
    lab.run(lambda: _started(lab))
    with pytest.raises(ApiError) as refusal:
        lab.part("1", rows, topic="a")
    assert refusal.value.detail == {"limit": "max_stage_parts", "max": 2}
    # One that is there is replaced, and another owner has places of its own.
    lab.part("0", rows, topic="a")
    lab.part("1", rows, topic="a", owner="a")
    lab.commit_stage("0")
    lab.part("1", rows, topic="a")
    lab.drop_stage("other")
    lab.part("2", rows, topic="a")
    assert (lab.stages.open.stages, lab.stages.open.parts) == (2, 3)
    lab.clock.advance(IDLE_MS)
    lab.collect()
    assert (lab.stages.open.stages, lab.stages.open.parts) == (0, 0)


async def _started(lab: StageLab) -> None:
    lab.restart()
    lab.stages.start()


@pytest.mark.parametrize("step_ms", [-10 * IDLE_MS, 10 * IDLE_MS])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_stage(lab: StageLab, step_ms: int) -> None:
    lab.part("0", {"data": ["1"]}, topic="a")
    lab.clock.step(step_ms)
    lab.clock.advance(IDLE_MS - 1)
    lab.collect()
    assert lab.stages.open.parts == 1
    lab.clock.advance(1)
    lab.collect()
    assert lab.stages.open.parts == 0


def test_parts_of_a_repeat_are_not_left_behind(lab: StageLab) -> None:
    for stage in ("first", "second"):
        lab.part("0", {"data": ["1"]}, topic="a", stage=stage)
        lab.commit_stage("0", stage=stage)
        assert lab.spooled() == []
    assert lab.data("a") == [1]

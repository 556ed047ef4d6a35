"""How far time runs ahead of the clock: looked for now and then, and told from a minute on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.log.harness import T0
from topics.core.clock import ManualClock
from topics.log.clock import TOLD_FROM_MS, ClockLead

LOOK_EVERY_MS = 5000


class Topics(dict[int, Any]):
    """Notes how often they were gone through."""

    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def ahead_by(ms: int) -> tuple[ClockLead, Topics, ManualClock]:
    """A topic whose last record is so much ahead of the clock; it has been looked at."""
    clock, topics = ManualClock(T0), Topics({1: SimpleNamespace(name="t", last_ts=T0 + ms)})
    shown_time: Any = SimpleNamespace(floor_ms=T0)
    lead = ClockLead(clock, shown_time, topics)
    lead.look()
    return lead, topics, clock


def test_topics_are_looked_at_again_after_a_while_as_long_as_one_is_ahead() -> None:
    lead, topics, clock = ahead_by(LOOK_EVERY_MS + 2)
    clock.advance(LOOK_EVERY_MS - 1)
    assert (lead.ms(), topics.looks) == (3, 1)
    clock.advance(1)
    assert (lead.ms(), topics.looks) == (2, 2)


@pytest.mark.parametrize("over_ms", [0, 1])
def test_where_none_is_ahead_no_topic_is_looked_at(over_ms: int) -> None:
    lead, topics, clock = ahead_by(LOOK_EVERY_MS)
    clock.advance(LOOK_EVERY_MS + over_ms)
    assert (lead.ms(), topics.looks) == (0, 1)


@pytest.mark.parametrize(("over_ms", "is_told"), [(0, False), (1, True)])
def test_more_than_a_minute_is_told_once(
    caplog: pytest.LogCaptureFixture, over_ms: int, is_told: bool
) -> None:
    lead, _, _ = ahead_by(TOLD_FROM_MS + over_ms)
    lead.look()
    assert len(caplog.messages) == is_told
    assert lead.told_ms() == (TOLD_FROM_MS + 1 if is_told else 0)

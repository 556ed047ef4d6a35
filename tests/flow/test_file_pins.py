"""A lease on files: how long they stay, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.sealed import readable, tagged
from tests.log.harness import Lab
from topics.core.errors import ApiError
from topics.flow import segment_pins as pins_module
from topics.flow.file_pins import LEASE_MS
from topics.flow.segment_pins import SegmentPins


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return tagged(Lab(tmp_path))


def test_a_lease_ends_unless_it_is_renewed(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    topic = lab.topic("a")
    view = pins.take(topic)
    assert view.expires_ms == lab.clock.now_ms() + LEASE_MS
    lab.clock.advance(LEASE_MS - 1)
    renewed = pins.renew(topic, view.id)
    assert renewed is not None
    assert renewed.expires_ms == lab.clock.now_ms() + LEASE_MS
    lab.clock.advance(LEASE_MS - 1)
    assert all(lab.engine.store.is_pinned(number) for number in view.segments)
    lab.clock.advance(1)
    assert not any(lab.engine.store.is_pinned(number) for number in view.segments)
    assert pins.renew(topic, view.id) is None


@pytest.mark.parametrize("step_ms", [-10 * LEASE_MS, 10 * LEASE_MS])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_it(lab: Lab, step_ms: int) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    view = pins.take(lab.topic("a"))
    lab.clock.step(step_ms)
    lab.clock.advance(LEASE_MS - 1)
    assert all(lab.engine.store.is_pinned(number) for number in view.segments)
    lab.clock.advance(1)
    assert not any(lab.engine.store.is_pinned(number) for number in view.segments)


def test_files_of_a_dropped_topic_stay_until_the_lease_is_over(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    view = pins.take(lab.topic("a"))
    lab.drop("a")
    for _ in range(3):
        lab.checkpoint()
    assert readable(lab, view, 1) == list(range(1, 11))
    lab.clock.advance(LEASE_MS)
    for _ in range(3):
        lab.checkpoint()
    assert lab.segment_files() == []


def test_their_number_is_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_VIEWS", 1)
    pins = SegmentPins(lab.engine)
    pins.take(lab.topic("a"))
    with pytest.raises(ApiError) as refusal:
        pins.take(lab.topic("a"))
    assert refusal.value.code == "throttled"
    lab.clock.advance(LEASE_MS)
    pins.take(lab.topic("a"))


def test_a_hold_is_released_once(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    topic = lab.topic("a")
    view = pins.take(topic)
    assert pins._views.release(view.id)
    assert not pins._views.release(view.id)
    assert not any(lab.engine.store.is_pinned(number) for number in view.segments)

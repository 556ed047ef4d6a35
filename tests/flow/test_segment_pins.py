"""Sealed files that readers open by themselves: what a view lists, and how long its files stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.sealed import readable, tagged
from tests.log.harness import Lab
from tests.support.damage import flip
from topics.core.errors import ApiError
from topics.flow import pins as pins_module
from topics.flow.pins import LEASE_MS, SegmentPins


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return tagged(Lab(tmp_path))


def test_a_snapshot_lists_sealed_runs_up_to_the_first_record_that_is_not_in_a_file(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint()
    view = pins.take(lab.topic("a"))
    assert [(run.base, run.count) for run in view.runs] == [(1, 4), (5, 4)]
    assert view.tail_from_seq == 8
    assert readable(lab, view, 1) == list(range(1, 9))
    lab.checkpoint(everything=True)
    assert pins.take(lab.topic("a")).tail_from_seq == 10


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3])
def test_deletions_are_in_the_files_or_in_the_snapshot(lab: Lab, checkpoints: int) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    lab.delete("a", match="odd")
    for _ in range(checkpoints):
        lab.checkpoint(everything=True)
    view = pins.take(lab.topic("a"))
    assert readable(lab, view, lab.topic("a").floor) == [1, 3, 5, 7, 9]


def test_a_snapshot_belongs_to_its_topic(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.write("b", 1)
    view = pins.take(lab.topic("a"))
    assert pins.renew(lab.topic("b"), view.id) is None
    assert not pins.release(lab.topic("b"), view.id)


def test_interior_holes_are_listed(lab: Lab) -> None:
    lab.checkpoint(everything=True)
    lab.engine.store.close()
    flip(lab.segment_files()[1], 40)
    assert lab.seqs("a") == [1, 2, 3, 4, 9, 10]
    assert SegmentPins(lab.engine).take(lab.topic("a")).holes == [(5, 8, "cap")]


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


def test_their_number_is_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_VIEWS", 1)
    pins = SegmentPins(lab.engine)
    pins.take(lab.topic("a"))
    with pytest.raises(ApiError) as refusal:
        pins.take(lab.topic("a"))
    assert refusal.value.code == "throttled"
    lab.clock.advance(LEASE_MS)
    pins.take(lab.topic("a"))

"""Files named in a view stay where they are until its lease is over, and tell what the view says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.sealed import readable, tagged
from tests.log.harness import Lab
from tests.support.damage import flip
from topics.flow.segment_pins import SegmentPins


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


def test_without_a_sealed_run_everything_has_to_come_from_the_server(lab: Lab) -> None:
    view = SegmentPins(lab.engine).take(lab.topic("a"))
    assert (view.runs, view.tail_from_seq) == ([], 0)


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3])
def test_deletions_are_in_the_files_or_in_the_snapshot(lab: Lab, checkpoints: int) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    lab.delete("a", match="odd")
    for _ in range(checkpoints):
        lab.checkpoint(everything=True)
    view = pins.take(lab.topic("a"))
    assert readable(lab, view, lab.topic("a").floor) == [1, 3, 5, 7, 9]


def test_pinned_files_outlive_their_records_and_go_when_they_are_released(lab: Lab) -> None:
    pins = SegmentPins(lab.engine)
    lab.checkpoint(everything=True)
    topic = lab.topic("a")
    view = pins.take(topic)
    before = readable(lab, view, 1)
    lab.delete("a", before=11)
    for _ in range(4):
        lab.checkpoint()
    assert all(Path(run.path).exists() for run in view.runs)
    assert readable(lab, view, 1) == before
    assert pins.release(topic, view.id)
    assert not pins.release(topic, view.id)
    for _ in range(3):
        lab.checkpoint()
    assert lab.segment_files() == []


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

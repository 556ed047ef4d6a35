"""Sealing in passes: what a pass leaves over, and what becomes of a file that could not be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.log.harness import Lab
from topics.log import checkpoint
from topics.log.batch import parse_append
from topics.log.checkpoint import Checkpointer, SegmentPlan
from topics.log.lifecycle import put_topic
from topics.log.state import TopicState
from topics.log.topic import Topic
from topics.storage.segment import DEAD
from topics.values.config import TopicConfig

QUIET = (lambda _: None, lambda error: None)


def fill(lab: Lab, runs: int) -> None:
    for at in range(runs):
        lab.write("t", *range(4 * at, 4 * at + 4))


def sealed(lab: Lab) -> int:
    return sum(run.sealed is not None for run in lab.engine.require("t").runs)


def seqs(lab: Lab) -> int:
    return lab.engine.read(lab.engine.require("t"), 0, 1000, 1 << 20).count


def test_a_backlog_is_sealed_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PASS_BYTES", 1)
    lab = Lab(tmp_path)
    fill(lab, 3)
    lab.checkpoint()
    assert (sealed(lab), lab.checkpointer.is_behind) == (1, True)
    lab.checkpoint()
    lab.checkpoint()
    assert (sealed(lab), lab.checkpointer.is_behind) == (3, False)
    assert seqs(lab) == 12
    lab.restart()
    assert seqs(lab) == 12
    lab.kill()


@pytest.mark.parametrize(
    ("runs", "small_bytes", "files"),
    [(8, 0, 8), (9, 0, 1), (17, 0, 2), (17, 1 << 20, 17), (65, 1 << 20, 5)],
)
def test_runs_share_files_only_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, small_bytes: int, files: int
) -> None:
    monkeypatch.setattr(checkpoint, "SEPARATE_SMALL_BYTES", small_bytes)
    lab = Lab(tmp_path)
    fill(lab, runs)
    lab.checkpoint()
    assert len(list((tmp_path / "segments").glob("*.segment"))) == files
    assert seqs(lab) == 4 * runs
    lab.restart()
    assert seqs(lab) == 4 * runs
    lab.kill()


def test_runs_of_a_file_that_was_not_written_are_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    fill(lab, 2)
    plan = lab.checkpointer.plan()
    assert [len(file.sealings) for file in plan] == [1, 1]
    assert lab.checkpointer.plan() == []  # frozen: nobody plans them twice
    lab.checkpointer.abandon(plan)

    def refuse(self: Checkpointer, file: SegmentPlan) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Checkpointer, "write_segment", refuse)
        with pytest.raises(OSError, match="no space"):
            lab.checkpoint()
    lab.checkpoint()
    assert sealed(lab) == 2
    assert seqs(lab) == 8
    lab.kill()


def test_a_checkpoint_looks_only_at_topics_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    for name in ("a", "b", "c"):
        lab.write(name, 1, 2)
    lab.checkpoint()
    looked_at: list[str] = []
    capture = checkpoint.capture_topic

    def noting(topic: Topic) -> TopicState:
        looked_at.append(topic.name)
        return capture(topic)

    monkeypatch.setattr(checkpoint, "capture_topic", noting)
    lab.checkpoint()
    assert looked_at == []
    lab.write("b", 3)
    lab.drop("c")
    lab.checkpoint()
    assert looked_at == ["b"]
    lab.restart()
    assert list(lab.engine.names_after("", "")) == ["a", "b"]
    assert lab.seqs("b") == [1, 2, 3]
    lab.kill()


def test_capturing_stops_in_between_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "STEP_S", 0.0)
    lab = Lab(tmp_path)
    lab.write("a", 1)
    assert lab.checkpointer.capture_step()
    monkeypatch.setattr(checkpoint, "STEP_S", 1.0)
    assert not lab.checkpointer.capture_step()
    lab.write("a", 2)
    lab.checkpoint()
    lab.restart()
    assert lab.seqs("a") == [1, 2]
    lab.kill()


def test_a_topic_on_its_way_to_disk_is_captured_once_it_is_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    put_topic(lab.engine, "t", TopicConfig(), lambda _: None, lambda error: None)
    assert not lab.checkpointer.capture_step()  # nothing to do, and nothing forgotten
    lab.engine.queue.sync_now()
    lab.checkpoint()
    lab.restart()
    assert lab.engine.find("t") is not None
    lab.kill()


def test_a_full_run_that_is_not_committed_yet_is_sealed_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("t", *range(4))
    lab.engine.append("t", parse_append(b'{"records":[{"data":1},{"data":2},{"data":3},{"data":4}]}'), *QUIET)
    assert [len(file.sealings) for file in lab.checkpointer.plan()] == [1]
    lab.engine.queue.sync_now()
    assert [len(file.sealings) for file in lab.checkpointer.plan()] == [1]
    lab.kill()


def test_many_runs_are_planned_and_adopted_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "STEP_RUNS", 2)
    lab = Lab(tmp_path)
    for number in range(7):
        lab.write(f"t{number}", number)
    plan: list[SegmentPlan] = []
    assert len(list(lab.checkpointer.plan_in_steps(plan, everything=True))) == 3
    assert [len(file.sealings) for file in plan] == [7]
    lab.checkpointer.write_segment(plan[0])
    steps = lab.checkpointer.adopt_in_steps(plan[0])
    next(steps)
    lab.delete("t6", before=2)  # emptied while the others were adopted
    for _ in steps:
        pass
    lab.checkpoint()
    lab.restart()
    assert [lab.seqs(f"t{number}") for number in range(7)] == [[1]] * 6 + [[]]
    lab.kill()


def flags(lab: Lab) -> tuple[set[int], set[int]]:
    """Deletions in the only sealed run: those its file shows, and those it does not show yet."""
    run = lab.engine.require("t").runs[0]
    assert run.sealed is not None
    segment = lab.engine.store.open_for_flips(run.sealed.segment)
    shown = set(np.flatnonzero(segment.flags(segment.entries[0]) == DEAD).tolist())
    segment.close()
    return shown, set(run.sealed.unflipped)


@pytest.fixture
def tagged(tmp_path: Path) -> Lab:
    """One sealed run of eight records with a tag each."""
    lab = Lab(tmp_path, segment_max_events=8)
    lab.write("t", *({"data": n, "tag": f"k{n}"} for n in range(8)))
    lab.checkpoint()
    return lab


def test_a_flag_is_flipped_when_two_snapshots_know_of_it_and_not_before(tagged: Lab) -> None:
    for number in range(1, 6):
        tagged.delete("t", match=f"k{number}")
        tagged.checkpoint()
        assert flags(tagged) == (set(range(1, number)), {number})
    left = tagged.states()
    tagged.kill()
    tagged.snapshot_files()[-1].write_bytes(b"rotten")
    tagged.open()
    assert tagged.states() == left


def test_a_deletion_that_comes_while_flags_are_flipped_is_not_forgotten(tagged: Lab) -> None:
    for number in (1, 2):
        tagged.delete("t", match=f"k{number}")
        tagged.checkpoint()
    body, replay_from = tagged.checkpointer.capture()
    tagged.checkpointer.write_snapshot(body)
    tagged.delete("t", match="k3")
    tagged.checkpointer.release(replay_from)
    assert flags(tagged) == ({1, 2}, {3})
    for _ in range(3):
        tagged.checkpoint()
        tagged.restart()
        assert tagged.seqs("t") == [1, 5, 6, 7, 8]

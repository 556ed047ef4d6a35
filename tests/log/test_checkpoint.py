"""Sealing in passes: what a pass leaves over, and what becomes of a file that could not be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log import checkpoint
from topics.log.checkpoint import Checkpointer, SegmentPlan


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


@pytest.mark.parametrize(("runs", "files"), [(8, 8), (9, 1), (17, 2)])
def test_runs_share_files_only_when_there_are_many(tmp_path: Path, runs: int, files: int) -> None:
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

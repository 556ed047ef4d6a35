"""`topics check`, as people call it; what it finds is tested where it is found out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.log.harness import Lab
from topics.storage.filesystem import Filesystem


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "data")
    lab.write_each("t", 3)
    return lab


def test_findings_as_text(lab: Lab) -> None:
    lab.stop()
    assert topics("check", lab.directory).output == f"{lab.directory}: clean; 1 topic with 3 records\n"
    (lab.directory / "mine").mkdir()
    (lab.directory / "witness").write_bytes(b"x" * 80)
    outcome = topics("check", lab.directory)
    assert outcome.code == 1
    problem, note, verdict = outcome.output.splitlines()
    assert problem.startswith("problem: witness is damaged")
    assert note == "note: mine is nothing of ours"
    assert verdict == f"{lab.directory}: 1 problem found; 1 topic with 3 records"


def test_mistakes(lab: Lab, tmp_path: Path) -> None:
    assert "no directory" in refused("check", tmp_path / "nowhere")
    assert "not a data directory" in refused("check", tmp_path)
    lock = Filesystem().lock(str(lab.directory / ".topics.lock"))
    assert "stop the server first" in refused("check", lab.directory)
    os.close(lock)
    lab.kill()
    assert topics("check", lab.directory).code == 0

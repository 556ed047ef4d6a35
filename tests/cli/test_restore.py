"""`topics restore`: what it says to mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import refused, topics
from tests.engine.lab import NodeLab
from tests.ops.backups import backup, fill, lab_in


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    backups, target = tmp_path / "backups", tmp_path / "again"
    assert "there are no backups" in refused("restore", backups, target)
    lab.stop()
    end = backup(tmp_path).json["to_ms"]
    assert "not a time" in refused("restore", backups, target, "--at", "yesterday")
    assert "time zone" in refused("restore", backups, target, "--at", "2026-01-01T00:00:00")
    assert "not a time" in refused("restore", backups, target, "--at", "9" * 5000)
    assert "TOPIC=N" in refused("restore", backups, target, "--seq", "t")
    assert "TOPIC=N" in refused("restore", backups, target, "--seq", "t=" + "9" * 5000)
    assert "no topic nobody" in refused("restore", backups, target, "--seq", "nobody=1")
    assert "ends at 11" in refused("restore", backups, target, "--seq", "t=12")
    assert "leave --at away" in refused("restore", backups, target, "--at", end + 1)
    assert "--same-history" in refused("restore", backups, target, "--at", end, "--same-history")
    assert "no backup nobody" in refused("restore", backups, target, "--backup", "nobody")
    assert "not empty" in refused("restore", backups, tmp_path)
    # The folder that one stands in is not meant by a variable that is not set.
    monkeypatch.chdir(backups)
    assert refused("restore", "", target) == "SOURCE is empty"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert refused("restore", backups, "") == "DATA_DIR is empty"
    assert not list(target.iterdir())
    # One backup by its own path; and what an interrupted restore has left is no obstacle.
    (target / ".restoring" / "journal").mkdir(parents=True)
    name = json.loads(topics("backup", backups, "--list", "--json").output)["backups"][0]["name"]
    assert topics("restore", backups / name, target).code == 0
    assert len(NodeLab(target).seqs("t")) == 11

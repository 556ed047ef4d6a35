"""`topics backup`: what it says to mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import refused
from tests.http.streaming import RunningApp
from tests.keep.backups import backup, fill, lab_in


def test_mistakes(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab)
    lab.stop()
    backups = tmp_path / "backups"
    assert "stop the server first" not in refused("backup", backups, "--data-dir", tmp_path / "nowhere")
    assert "there are no backups" in refused("backup", backups, "--list")
    backup(tmp_path)
    inside = tmp_path / "data" / "backups"
    assert "inside the data directory" in refused("backup", inside, "--data-dir", tmp_path / "data")
    assert "at least 1" in refused("backup", backups, "--prune", 0)


def test_files_that_cannot_be_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = RunningApp(tmp_path / "data")
    try:
        monkeypatch.setattr("os.access", lambda path, mode: False)
        host, port = app.address
        said = refused("backup", tmp_path / "backups", "--url", f"http://{host}:{port}")
        assert "runs on the machine of the server" in said
    finally:
        app.stop()

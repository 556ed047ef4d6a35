"""`topics backup`: what it says to mistakes."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.command import refused
from tests.http.streaming import RunningApp
from tests.ops.backups import backup, fill, lab_in
from topics.cli import backup as backup_command
from topics.client.sync import Topics
from topics.flow.pins import LEASE_MS


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


def test_files_are_held_for_as_long_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the files and slow the disk: the lease is renewed well before its end."""
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(backup_command, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    app = RunningApp(tmp_path / "data")
    try:
        assert LEASE_MS / 1000 >= 2 * (backup_command.RENEW_S + 10.0)
        host, port = app.address
        renewals: list[str] = []
        ask = backup_command.ask

        def noted(client: Topics, method: str, path: str) -> Any:
            if path.endswith("/renew"):
                renewals.append(path)
            return ask(client, method, path)

        monkeypatch.setattr(backup_command, "ask", noted)
        with backup_command.running_server(Topics(f"http://{host}:{port}")) as source:
            for moved in range(1, 9):
                source.keep()
                # It is asked for the time once, and again where it renews.
                assert len(renewals) == moved // 2
        assert len(set(renewals)) == 1
    finally:
        app.stop()

"""Verbs that work without a server do so without anything of it that concerns the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.lab import NodeLab

_LOOK = """
import sys
from topics.cli.main import main

assert main(sys.argv[1:]) == 0
sys.exit(" ".join(sorted(name for name in sys.modules if name.startswith("topics.http"))) or 0)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With records in a segment and in the journal, and one backup of it."""
    lab = NodeLab(tmp_path / "data")
    lab.write_each("t", 10)
    lab.delete("t", before=3)
    lab.checkpoint()
    lab.write_each("t", 3)
    lab.stop()
    offline(tmp_path, "backup", "backups", "--data-dir", "data")
    return tmp_path


def offline(directory: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", _LOOK, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "data"),
        ("backup", "backups", "--data-dir", "data"),
        ("backup", "backups", "--verify"),
        ("restore", "backups", "restored"),
        ("compact", "--purge", "--data-dir", "data"),
    ],
    ids=" ".join,
)
def test_an_offline_verb_imports_nothing_of_http(directory: Path, arguments: tuple[str, ...]) -> None:
    offline(directory, *arguments)


def test_help_imports_the_command_and_nothing_else() -> None:
    """Neither the server nor the client, nor anything that had to be installed for them."""
    look = """
import sys
before = set(sys.modules)
from topics.cli.main import main
main(["--help"])
names = set(sys.modules) - before
print(*sorted(name for name in names if name.split(".")[0] not in sys.stdlib_module_names), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["topics", "topics.cli", "topics.cli.main"]

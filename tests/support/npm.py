"""Packages of npm that tests need, installed on demand."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

PATIENCE_S = 110


def node_modules(sources: Path) -> Path:
    """Install the packages of this folder in the versions of its lock file. Skip the test without npm."""
    npm, installed = shutil.which("npm"), sources / "node_modules"
    if npm is None:
        pytest.skip("needs npm")
    # Processes of the same run may need it at once: one installs, and the others wait.
    with (sources / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (installed / ".package-lock.json").exists():
            done = subprocess.run(
                [npm, "ci"], cwd=sources, capture_output=True, text=True, timeout=PATIENCE_S
            )
            if done.returncode:
                pytest.skip(f"npm could not install: {done.stderr[-300:]}")
    return installed

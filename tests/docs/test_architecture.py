"""docs/architecture.md: the picture shows the packages, and what the text names exists."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.examples import ROOT


def test_the_picture_is_what_the_packages_are() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/architecture.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

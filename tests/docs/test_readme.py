"""The README's commands work as they stand, and every setting is documented."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path

from tests.support import ServerProcess
from topics.values.settings import Settings

ROOT = Path(__file__).parents[2]


def bash_blocks(path: Path) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", path.read_text(), re.S)


def run(block: str, server: ServerProcess) -> str:
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        env={**os.environ, "TOPICS": f"http://{server.address}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_tour(server: ServerProcess) -> None:
    writing, losing = bash_blocks(ROOT / "README.md")
    output = run(writing, server)
    assert '"error"' not in output
    assert '"data":"late"' in output
    assert '"deleted":1' in output
    output = run(losing, server)
    assert '"error"' not in output
    assert '"gap_from":1,"gap_to":2,"reason":"cap"' in output


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"`(TOPICS_[A-Z_]+)`", (ROOT / "docs/configuration.md").read_text()))
    assert documented == {"TOPICS_" + field.name.upper() for field in fields(Settings)}

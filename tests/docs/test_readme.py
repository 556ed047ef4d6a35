"""The README's commands work as they stand, and every setting is documented."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tests.docs.examples import ROOT, Example, examples, run_bash
from tests.support import ServerProcess
from topics.values.settings import Settings

START_S = 120


@pytest.fixture
def made(tmp_path: Path) -> Iterator[ServerProcess]:
    """What `make run` starts, in a folder like that of a checkout."""
    for name in ("examples", "Makefile", "requirements", "pyproject.toml", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    planned = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert planned.returncode == 0, planned.stderr
    server = ServerProcess(tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
    with (tmp_path / "run.log").open("wb") as log:
        server.process = subprocess.Popen(
            # The last command is the one that runs; those before install.
            ["bash", "-c", "exec " + planned.stdout.splitlines()[-1]],
            cwd=tmp_path,
            env={**environment, "TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(tmp_path / "port")},
            stderr=log,
        )
    deadline = time.monotonic() + START_S
    while not (tmp_path / "port").exists():
        assert time.monotonic() < deadline, (tmp_path / "run.log").read_text()
        time.sleep(0.05)
    server.address = (tmp_path / "port").read_text().strip()
    try:
        yield server
    finally:
        process = server.process
        process.send_signal(signal.SIGTERM)
        code = process.wait(START_S)
        said = (tmp_path / "run.log").read_text()
    assert code == 0, said
    assert "Traceback" not in said
    assert "shop-lake (archive) stopped" in said
    assert "large-orders (route) stopped" in said


@pytest.mark.timeout(400)
def test_tour(made: ServerProcess) -> None:
    writing, through_pipelines, removing, losing = examples(ROOT / "README.md", "bash")

    def run(example: Example) -> str:
        # Sixty seconds are enough for somebody who has the machine alone.
        output = run_bash(
            example.code.replace("--wait 60", f"--wait {START_S}"), made, made.directory, START_S
        )
        assert '"error"' not in output
        return output

    assert '"sku":"FILTERS"' in run(writing)
    output = run(through_pipelines)
    assert output.endswith(through_pipelines.answer)
    assert "lag 0" in output
    assert output.count('"$seq"') == 1
    assert '"data":{"sku":"FILTERS","qty":2}' in output
    output = run(removing)
    assert '"data":"late"' in output
    assert '"deleted":1' in output
    output = run(losing)
    assert '"gap_from":1,"gap_to":2,"reason":"cap"' in output
    assert '"data":{"kind":"tombstone","topic":"recent","gap_from":1,"gap_to":2,"reason":"cap"}' in output
    assert output.endswith(losing.answer)


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"`(TOPICS_[A-Z_]+)`", (ROOT / "docs/configuration.md").read_text()))
    assert documented == {"TOPICS_" + field.name.upper() for field in fields(Settings)}

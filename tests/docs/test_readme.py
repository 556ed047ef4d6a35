"""The README's commands work as they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import ROOT, check_answer, examples, run_bash, table
from tests.support import ServerProcess

START_S = 120


@pytest.fixture
def made(tmp_path: Path) -> Iterator[ServerProcess]:
    """What `make run` starts, in a folder like that of a checkout."""
    for name in ("examples", "Makefile", "requirements", "pyproject.toml", "scripts", "src"):
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
    *with_the_server, on_spark = examples(ROOT / "README.md", "bash")
    assert len(with_the_server) == 4
    for example in with_the_server:
        assert example.answer_kind == "json"
        check_answer(example, run_bash(example.code, made, made.directory))
    (in_python,) = examples(ROOT / "README.md", "python")
    program = in_python.code.replace("http://127.0.0.1:4000", made.url)
    for expected in ("1 /\n2 /cart\n3 /pay\n", ""):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=made.directory, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
    # Sixty seconds are enough for somebody who has the machine alone.
    code = on_spark.code.replace("--wait 60", f"--wait {START_S}")
    output = run_bash(code, made, made.directory, 2 * START_S)
    assert output.endswith(on_spark.answer)
    assert output.count('"lag":0,"updated_ts"') == 4
    assert output.count('"$seq"') == 2
    assert '"data":{"sku":"FILTERS","qty":2}' in output
    assert '"data":{"kind":"tombstone","topic":"recent","gap_from":1,"gap_to":2,"reason":"cap"}' in output


def test_the_server_alone_needs_no_spark() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", "serve", "VENV=none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    *installing, last = planned.stdout.splitlines()
    assert last == "none/bin/topics serve"
    assert any("requirements/base.txt" in line for line in installing)
    assert "spark" not in planned.stdout


def test_every_folder_is_introduced() -> None:
    folders = [row[0].strip("`") for row in table(ROOT / "README.md", "Folder")]
    assert all((ROOT / folder).is_dir() for folder in folders)
    packages = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("src/topics/*/__init__.py")}
    assert packages <= set(folders)

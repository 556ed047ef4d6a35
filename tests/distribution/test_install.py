"""Wheel and sdist, built and installed into environments that have nothing else in them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 15
MOST_BYTES = 30 * 1024 * 1024
# Wide: what is promised is half a second on a machine that does nothing else.
VERSION_WITHIN_S = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Environment:
    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.topics = folder / "bin" / "topics"
        # Installed before, so that neither they nor their size are counted as ours.
        self._before = self.packages()
        self._size_before = self._size()

    def install(self, what: object) -> None:
        run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what)

    def packages(self) -> set[str]:
        listed = run(self.python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
        return {each["name"] for each in json.loads(listed)}

    def _size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def added(self) -> set[str]:
        return self.packages() - self._before

    @property
    def added_bytes(self) -> int:
        return self._size() - self._size_before


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    builder = Environment(folder / "builder")
    builder.install("build")
    run(builder.python, "-m", "build", "--outdir", folder, ROOT)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_the_wheel_alone_is_the_client_and_the_command(built: Path, tmp_path: Path) -> None:
    wheel = only(built, "topics_log-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"topics", "pyspark_topics"}
    environment = Environment(tmp_path / "empty")
    environment.install(wheel)
    assert "topics-log" in environment.added
    assert len(environment.added) <= MOST_PACKAGES, environment.added
    assert environment.added_bytes <= MOST_BYTES
    run(environment.topics, "--version")  # compiles
    started = time.monotonic()
    assert run(environment.topics, "--version") == run(environment.python, "-m", "topics", "--version")
    assert time.monotonic() - started < 2 * VERSION_WITHIN_S
    assert "verify a data directory" in run(environment.topics)
    done = subprocess.run([environment.topics, "serve"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "topics-log[server]" in done.stderr) == (2, True)


def test_the_sdist_with_the_server(built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "server")
    environment.install(f"{only(built, 'topics_log-*.tar.gz')}[server]")
    assert "0 records" in run(environment.topics, "check", _data_of(environment, tmp_path))


def _data_of(environment: Environment, folder: Path) -> Path:
    """A directory that the installed server has made."""
    port_file, data = folder / "port", folder / "data"
    server = subprocess.Popen(
        [environment.topics, "serve", "--port", "0", "--data-dir", data],
        env={"TOPICS_PORT_FILE": str(port_file)},
    )
    try:
        deadline = time.monotonic() + 60
        while not port_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert port_file.exists()
    finally:
        server.terminate()
        assert server.wait(60) == 0
    return data

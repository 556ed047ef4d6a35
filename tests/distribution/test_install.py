"""Wheel and sdist, built and installed into environments that have nothing else in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest
from scripts import build_native

from topics import compiled

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 15
MOST_BYTES = 30 * 1024 * 1024
# Wide: what is promised is half a second on a machine that does nothing else.
VERSION_WITHIN_S = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


SWITCH = "TOPICS_BUILD_NATIVE"
NO_COMPILER = {"CC": "/bin/false"}


def ended(*command: object, **more: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    # With a PYTHONPATH, what is imported would be this clone, and not what was installed.
    kept = {name: value for name, value in os.environ.items() if name not in (SWITCH, "PYTHONPATH")}
    return subprocess.run(words, capture_output=True, text=True, timeout=900, env=kept | more)


def run(*command: object, **more: str) -> str:
    done = ended(*command, **more)
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

    def wheel(self, source: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """One of this source in this folder. What pip has built before is not taken for it."""
        options = ("--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps")
        return ended(self.python, "-m", "pip", "wheel", *options, "--wheel-dir", folder, source, **more)

    def codec(self) -> str:
        return run(self.topics, "--version").splitlines()[1]

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
    """The sdist, and the wheel that is made from it where there is a compiler."""
    folder = tmp_path_factory.mktemp("built")
    builder = Environment(folder / "builder")
    builder.install("build")
    run(builder.python, "-m", "build", "--outdir", folder, ROOT)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def compiled_names(wheel: Path) -> list[str]:
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so"))


def test_the_wheel_alone_is_the_client_and_the_command(built: Path, tmp_path: Path) -> None:
    wheel = only(built, "topics_log-*.whl")
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
    done = ended(environment.topics, "serve")
    assert (done.returncode, "topics-log[server]" in done.stderr) == (2, True)


def test_the_wheel_has_all_that_is_compiled_and_is_for_this_python_alone(built: Path, tmp_path: Path) -> None:
    if not build_native.compiler() or not build_native.headers():
        pytest.skip("there is no C compiler, or there are no headers of Python")
    wheel = only(built, "topics_log-*.whl")
    *_, interpreter, abi, platform = wheel.stem.split("-")
    assert interpreter == f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert abi == interpreter + sys.abiflags
    assert platform == sysconfig.get_platform().replace("-", "_").replace(".", "_")
    # Its own name keeps another interpreter from it as well, should somebody unpack the wheel by hand.
    modules = [f"topics/_compiled/{compiled.file_of(name)}" for name in (*compiled.MODULES, compiled.LIBRARY)]
    assert compiled_names(wheel) == sorted([f"{build_native.PACKAGE}/{build_native.FILE_NAME}", *modules])
    environment = Environment(tmp_path / "compiled")
    environment.install(f"{wheel}[server]")
    assert environment.codec() == "codec: native"
    imported = f"import {compiled.MODULES[-1]} as module; print(module.__file__)"
    assert run(environment.python, "-c", imported, **{compiled.SWITCH: "1"}).endswith(".so\n")
    for other in (("--python-version", "3.99"), ("--platform", "linux_s390x"), ("--implementation", "pp")):
        asked = (
            *other,
            "--only-binary=:all:",
            "--no-deps",
            "--no-index",
            "--dest",
            tmp_path / "other",
            wheel,
        )
        refused = ended(environment.python, "-m", "pip", "download", *asked)
        assert (refused.returncode, "is not a supported wheel" in refused.stderr) == (1, True), refused.stderr


def test_the_sdist_with_the_server(built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "server")
    environment.install(f"{only(built, 'topics_log-*.tar.gz')}[server]")
    assert "0 records" in run(environment.topics, "check", _data_of(environment, tmp_path))
    if build_native.compiler() and build_native.headers():
        assert environment.codec() == "codec: native"


def test_without_a_compiler_the_wheel_is_pure_and_its_server_starts(built: Path, tmp_path: Path) -> None:
    source = only(built, "topics_log-*.tar.gz")
    environment = Environment(tmp_path / "pure")
    done = environment.wheel(source, tmp_path, **NO_COMPILER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wheel = only(tmp_path, "topics_log-*-py3-none-any.whl")
    assert compiled_names(wheel) == []
    environment.install(f"{wheel}[server]")
    assert environment.codec() == "codec: python"
    assert "0 records" in run(environment.topics, "check", _data_of(environment, tmp_path))
    # Where it is demanded, there is no wheel rather than this one.
    demanded = environment.wheel(source, tmp_path / "none", **NO_COMPILER, **{SWITCH: "1"})
    assert demanded.returncode == 1
    assert "cannot be compiled" in demanded.stderr
    assert not list(tmp_path.glob("none/*"))


def test_a_pure_wheel_can_be_asked_for(built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "pure")
    done = environment.wheel(only(built, "topics_log-*.tar.gz"), tmp_path, **{SWITCH: "0"})
    assert done.returncode == 0, done.stderr
    assert compiled_names(only(tmp_path, "topics_log-*-py3-none-any.whl")) == []


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

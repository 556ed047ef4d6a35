"""Compiled modules: a server uses them, unless a source has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ServerProcess
from tests.support.sources import SRC
from topics import compiled

needs_compiled = pytest.mark.skipif(
    not compiled.are_current(), reason="modules are not compiled: `make test` compiles them"
)


def imported(asked: str, sources: Path = SRC) -> list[str]:
    """The files that Python imports the modules from, or what it says instead."""
    program = f"from importlib import import_module as i; [print(i(n).__file__) for n in {compiled.MODULES}]"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(sources), compiled.SWITCH: asked},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).splitlines()


@needs_compiled
def test_a_server_uses_them(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, **{compiled.SWITCH: "1"}).start()
    try:
        assert compiled.LIBRARY in Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.stop()


def sources(folder: Path) -> list[str]:
    return [str(folder / compiled.source_of(name)) for name in compiled.MODULES]


@needs_compiled
def test_they_are_used_unless_told_otherwise() -> None:
    expected = [str(Path(compiled.FOLDER, compiled.file_of(name))) for name in compiled.MODULES]
    assert imported("") == imported("1") == expected
    assert imported("0") == sources(SRC)


@needs_compiled
def test_after_a_change_the_sources_are_used(tmp_path: Path) -> None:
    copy = shutil.copytree(SRC / "topics", tmp_path / "topics").parent
    assert all(path.endswith(".so") for path in imported("", copy))
    changed = copy / compiled.source_of(compiled.MODULES[0])
    changed.write_text(changed.read_text() + "\n")
    assert imported("", copy) == sources(copy)
    assert "no compiled modules that fit" in imported("1", copy)[-1]


def test_without_them_the_sources_are_used(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("_compiled")
    copy = shutil.copytree(SRC / "topics", tmp_path / "topics", ignore=ignored).parent
    assert imported("", copy) == sources(copy)
    assert "no compiled modules that fit" in imported("1", copy)[-1]


def test_another_choice_is_refused() -> None:
    assert "must be 0, 1 or empty, not 'yes'" in imported("yes")[-1]

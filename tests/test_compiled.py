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


def imported(asked: str, sources: Path = SRC, module: str = compiled.MODULES[-1]) -> str:
    """The file that Python imports a module from, or what it says instead."""
    program = f"import {module} as module; print(module.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(sources), compiled.SWITCH: asked},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr


@needs_compiled
def test_a_server_uses_them(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, **{compiled.SWITCH: "1"}).start()
    try:
        assert compiled.LIBRARY in Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.stop()


@needs_compiled
@pytest.mark.parametrize("module", compiled.MODULES)
def test_they_are_used_unless_told_otherwise(module: str) -> None:
    assert imported("", module=module) == str(Path(compiled.FOLDER, compiled.file_of(module)))
    assert imported("0", module=module) == str(SRC / compiled.source_of(module))


@needs_compiled
def test_after_a_change_the_sources_are_used(tmp_path: Path) -> None:
    copy = shutil.copytree(SRC / "topics", tmp_path / "topics").parent
    assert imported("", copy).endswith(".so")
    changed = copy / compiled.source_of(compiled.MODULES[0])
    changed.write_text(changed.read_text() + "\n")
    assert imported("", copy) == str(copy / compiled.source_of(compiled.MODULES[-1]))
    assert "no compiled modules that fit" in imported("1", copy)


def test_without_them_the_sources_are_used(tmp_path: Path) -> None:
    copy = shutil.copytree(
        SRC / "topics", tmp_path / "topics", ignore=shutil.ignore_patterns("_compiled")
    ).parent
    assert imported("", copy).endswith(".py")
    assert "no compiled modules that fit" in imported("1", copy)


def test_another_choice_is_refused() -> None:
    assert "must be 0, 1 or empty, not 'yes'" in imported("yes")

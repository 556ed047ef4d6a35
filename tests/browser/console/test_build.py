"""The files that are served are those that the sources make."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.browser.console.conftest import SOURCES
from topics.http.console.routes import BUILT


def test_the_built_files_are_up_to_date(node_modules: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    subprocess.run([node, "build.mjs", str(tmp_path)], cwd=SOURCES, check=True, timeout=100)
    built = {path.name: path.read_bytes() for path in BUILT.iterdir()}
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built.keys() == made.keys()
    different = [name for name in built if built[name] != made[name]]
    assert not different, "run `npm run build` in console/"

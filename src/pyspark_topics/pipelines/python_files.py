"""Python that a user wrote beside a declaration."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any


def run_file(path: Path) -> dict[str, Any]:
    """What the file defines. Like a script, it may import modules that lie beside it, now and later."""
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return runpy.run_path(str(path))

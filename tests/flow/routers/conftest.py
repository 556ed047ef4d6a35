"""An engine with routers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab


@pytest.fixture
def lab(tmp_path: Path) -> RouterLab:
    return RouterLab(tmp_path)

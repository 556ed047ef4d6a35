"""An engine with stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.stages.lab import LargeLab, StageLab


@pytest.fixture
def lab(tmp_path: Path) -> StageLab:
    return StageLab(tmp_path)


@pytest.fixture
def large_lab(tmp_path: Path) -> LargeLab:
    """Every commit goes into segments."""
    return LargeLab(tmp_path)

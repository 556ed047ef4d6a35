"""An engine with stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.stages.lab import StageLab


@pytest.fixture
def lab(tmp_path: Path) -> StageLab:
    return StageLab(tmp_path)

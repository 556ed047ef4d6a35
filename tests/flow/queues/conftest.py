"""An engine with a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.queues.lab import QueueLab


@pytest.fixture
def lab(tmp_path: Path) -> QueueLab:
    lab = QueueLab(tmp_path)
    lab.put("q")
    return lab

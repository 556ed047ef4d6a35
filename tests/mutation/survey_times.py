"""A plugin for pytest: notes how long each test took, under the name that pytest takes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path("times.json").write_text(json.dumps(_seconds))

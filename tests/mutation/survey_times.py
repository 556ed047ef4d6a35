"""A plugin for pytest: notes how long each test kept a processor busy, under the name that pytest takes.

Elapsed time would grow with whatever else the machine does, and fewer tests would be asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_seconds: dict[str, float] = {}


def _busy_s() -> float:
    """Of this process, and of the children that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _busy_s()
    yield
    _seconds[item.nodeid] = _busy_s() - before


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path("times.json").write_text(json.dumps(_seconds))

"""Labs for the tests of the log: one as it comes, or made with other settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.harness import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda *clock, **settings: Lab(tmp_path / "data", *clock, **settings)


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()

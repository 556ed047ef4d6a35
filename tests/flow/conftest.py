"""A lab whose topics are watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.watched import Scenario, Watched
from tests.log.harness import Lab


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            lab = Lab(tmp_path / "data")
            await scenario(Watched(lab))
            lab.kill()

        asyncio.run(main())

    return run

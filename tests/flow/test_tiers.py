"""Old segments move to the second tier, unless a reader holds them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.flow.sealed import readable
from tests.log.harness import Lab
from topics.flow.pins import Pins
from topics.flow.upkeep import Tiers


def test_pinned_files_are_not_moved_to_the_second_tier(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0)
    lab.write_each("a", 8)
    lab.checkpoint(everything=True)
    pins, tiers = Pins(lab.engine), Tiers(lab.engine)
    moving = asyncio.run(tiers.due())
    assert moving
    tiers.copy(moving[0])
    view = pins.take(lab.topic("a"))
    tiers.switch(moving[0])
    assert all(Path(run.path).exists() for run in view.runs)
    assert asyncio.run(tiers.due()) == []
    assert readable(lab, view, 1) == lab.seqs("a")
    pins.release(lab.topic("a"), view.id)
    assert asyncio.run(tiers.due()) == moving

"""Recovery as those see it who wait for it; what it recovers is tested where it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log.engine import Engine
from topics.log.recovery import Recovery
from topics.values.settings import Settings


@pytest.mark.parametrize("batch", [1, 100])
def test_its_progress_is_told_on_the_way(tmp_path: Path, batch: int) -> None:
    lab = Lab(tmp_path)
    for number in range(100):
        for name in ("a", "b"):  # in turn: frames of one topic would be read as one
            lab.write(name, *[number] * batch)
    lab.kill()
    told: list[float] = []
    engine = Engine(Settings(data_dir=str(tmp_path)), lab.disk, lab.clock)
    Recovery(engine, told.append).run()
    engine.close(clean=True)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len([share for share in told if 0.1 < share < 0.9]) >= 5

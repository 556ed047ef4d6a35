"""What recovery tells while it runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.log.harness import Lab
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery
from topics.values.settings import Settings


def test_progress_follows_the_bytes_however_few_frames_they_are(tmp_path: Path) -> None:
    lab = Lab(tmp_path, hot_bytes=1 << 30)
    lab.put("t")
    for _ in range(20):
        lab.write("t", *(["x" * 1000] * 100))
    lab.kill()
    told: list[float] = []
    engine = Engine(Settings(data_dir=str(tmp_path)), lab.disk, lab.clock)
    Recovery(engine, told.append).run()
    engine.close(clean=False)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert all(following - one < 0.1 for one, following in pairwise(told))

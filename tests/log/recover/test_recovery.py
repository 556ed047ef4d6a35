"""What recovery starts from, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.log.harness import Lab
from tests.support.damage import flip
from topics.core.settings import Settings
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery


def test_progress_follows_the_bytes_however_few_frames_they_are(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(hot_bytes=1 << 30)
    lab.put("t")
    for _ in range(20):
        lab.write("t", *(["x" * 1000] * 100))
    lab.kill()
    told: list[float] = []
    engine = Engine(Settings(data_dir=str(lab.directory)), lab.disk, lab.clock)
    Recovery(engine, told.append).run()
    engine.close(clean=False)
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert all(following - one < 0.1 for one, following in pairwise(told))


@pytest.mark.parametrize("index", [0, 1])
def test_a_damaged_snapshot_is_replaced_soon(lab: Lab, index: int) -> None:
    for _ in range(3):
        lab.write_each("t", 1)
        lab.checkpoint()
    lab.restart()
    assert not lab.checkpointer.is_due()
    lab.kill()
    flip(lab.snapshot_files()[index], 40)
    lab.open()
    assert lab.checkpointer.is_due()
    lab.checkpoint()
    assert not lab.checkpointer.is_due()


def test_a_number_that_comes_again_is_looked_for_in_the_right_tier(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """The only snapshot is damaged: all is read from the journal, and sealed anew under the old numbers."""
    lab = make_lab(cold_dir=str(tmp_path / "cold"))
    lab.write_each("t", 9)
    lab.checkpoint()
    for path in lab.segment_files():
        path.rename(tmp_path / "cold" / path.name)
    lab.kill()
    flip(lab.snapshot_files()[0], -1)
    lab.open()
    lab.checkpoint()
    assert lab.segment_files()
    assert lab.seqs("t") == list(range(1, 10))
    assert lab.gaps("t") == []


def test_the_page_says_up_to_where_seqs_of_any_topic_are_reserved(lab: Lab) -> None:
    lab.write_each("few", 1)
    lab.write("many", *range(5000))
    lab.restart(clean=True)
    reserved = [lab.topic(name).reserve_asked for name in ("few", "many")]
    assert reserved[0] < reserved[1]
    lab.restart()
    assert lab.engine.witness.previous.reserved == reserved[1]

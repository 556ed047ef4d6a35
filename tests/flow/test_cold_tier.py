"""Old segments move to the second tier, unless a reader holds them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.flow.sealed import readable
from tests.log.harness import Lab
from topics.flow.cold_tier import ColdTier
from topics.flow.segment_pins import SegmentPins
from topics.storage.cold_files import Owner, write_owner
from topics.storage.fileheader import mark_of
from topics.storage.filesystem import Filesystem
from topics.storage.identity import Identity
from topics.storage.segment import file_name


def test_pinned_files_are_not_moved_to_the_second_tier(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0)
    lab.write_each("a", 8)
    lab.checkpoint(everything=True)
    pins, tiers = SegmentPins(lab.engine), ColdTier(lab.engine)
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


@pytest.mark.parametrize(
    ("segments", "records", "moved"), [(0, 0, 3), (1, 0, 2), (0, 4, 2), (0, 3, 3), (2, 4, 1), (1, 8, 1)]
)
def test_the_newest_stay_so_many_segments_and_so_many_bytes(
    tmp_path: Path, segments: int, records: int, moved: int
) -> None:
    """Each segment has four records, of a byte each."""
    cold = str(tmp_path / "cold")
    settings = {"hot_retain_segments": segments, "hot_retain_bytes": records}
    lab = Lab(tmp_path / "hot", cold_dir=cold, **settings)
    lab.write("a", *[1] * 4)
    lab.write("a", *[1] * 4)
    lab.write("a", *[1] * 4)
    lab.checkpoint(everything=True)
    assert len(asyncio.run(ColdTier(lab.engine).due())) == moved
    lab.kill()


def test_a_segment_whose_name_is_taken_stays(tmp_path: Path) -> None:
    """What has the name there is not ours."""
    cold, identity = tmp_path / "cold", Identity("ab" * 16)
    cold.mkdir()
    write_owner(Filesystem(), str(cold), Owner(identity.identity, str(tmp_path / "hot")))
    lab = Lab(tmp_path / "hot", cold_dir=str(cold), hot_retain_segments=0)
    lab.write_each("a", 8)
    lab.checkpoint(everything=True)
    tiers = ColdTier(lab.engine)
    first, second = asyncio.run(tiers.due())
    (cold / file_name(first)).write_bytes(b"of another")
    assert not tiers.copy(first)
    assert asyncio.run(tiers.due()) == [second]
    assert tiers.copy(second)
    tiers.switch(second)
    assert mark_of((cold / file_name(second)).read_bytes()) == identity.mark
    assert (cold / file_name(first)).read_bytes() == b"of another"
    assert lab.seqs("a") == list(range(1, 9))
    lab.restart()
    assert lab.seqs("a") == list(range(1, 9))
    assert (cold / file_name(first)).read_bytes() == b"of another"


def test_a_copy_that_was_not_switched_to_is_not_read(tmp_path: Path) -> None:
    """Stopped in between, both files are there; what is deleted since is noted in the first one alone."""
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"), hot_retain_segments=0)
    lab.write_each("a", 8, tag="x")
    lab.checkpoint(everything=True)
    tiers = ColdTier(lab.engine)
    first, second = asyncio.run(tiers.due())
    for number in (first, second):
        assert tiers.copy(number)
    tiers.switch(second)
    lab.checkpoint()
    for _ in range(2):
        assert (lab.engine.store.cold, lab.seqs("a")) == ({second}, list(range(1, 9)))
        assert Path(lab.engine.store.path(first)).parent == lab.directory / "segments"
        lab.restart()
    # What was left behind there is put in its place the next time.
    assert asyncio.run(ColdTier(lab.engine).due()) == [first]

"""The names in a data directory, and sweeping up what a crash left there."""

from __future__ import annotations

from pathlib import Path

from topics.storage.directories import Directories, sweep_segments
from topics.storage.filesystem import Filesystem
from topics.storage.segment import file_name


def test_the_first_tier_counts_where_both_have_a_segment(tmp_path: Path) -> None:
    data, cold = tmp_path / "data", tmp_path / "cold"
    (data / "segments").mkdir(parents=True)
    cold.mkdir()
    places = ((data / "segments", 1), (data / "segments", 2), (cold, 2), (cold, 3))
    for directory, number in places:
        (directory / file_name(number)).touch()
    (cold / "4.segment").touch()
    paths = Directories(str(data), str(cold)).segment_paths(Filesystem())
    assert paths == {
        1: str(data / "segments" / file_name(1)),
        2: str(data / "segments" / file_name(2)),
        3: str(cold / file_name(3)),
    }


def test_sweeping_leaves_what_is_wanted_and_what_is_not_ours(tmp_path: Path) -> None:
    kept = [file_name(1), "9.segment", "notes.txt"]
    for name in (*kept, file_name(2), file_name(1) + ".tmp", file_name(3) + ".tmp"):
        (tmp_path / name).touch()
    assert sweep_segments(Filesystem(), str(tmp_path), lambda number: number < 2) == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert sweep_segments(Filesystem(), str(tmp_path / "nowhere"), lambda number: True) == []

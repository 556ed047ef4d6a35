"""Where the second tier lies is known even when nobody says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from topics.storage.directories import Directories, settle_cold_dir, sweep_segments
from topics.storage.filesystem import Filesystem
from topics.storage.segment import file_name
from topics.values.errors import ConfigError


def settle(data: Path, cold: Path | None) -> str | None:
    return settle_cold_dir(Filesystem(), Directories(str(data), None if cold is None else str(cold)))


@pytest.fixture
def tiers(tmp_path: Path) -> tuple[Path, Path]:
    """A directory that uses its second tier: one segment lies there."""
    data, cold = tmp_path / "data", tmp_path / "cold"
    (data / "segments").mkdir(parents=True)
    cold.mkdir()
    assert settle(data, cold) == str(cold)
    (cold / file_name(3)).touch()
    return data, cold


def test_without_a_second_tier_there_is_no_note(tmp_path: Path) -> None:
    assert settle(tmp_path, None) is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_left_there_is_found(tiers: tuple[Path, Path]) -> None:
    data, cold = tiers
    assert settle(data, None) == str(cold)
    assert settle(data, cold) == str(cold)


def test_nothing_is_left_there(tiers: tuple[Path, Path]) -> None:
    data, cold = tiers
    shutil.move(cold / file_name(3), data / "segments")
    assert settle(data, None) is None
    # What another server keeps there from now on is not taken for ours.
    (cold / file_name(7)).touch()
    assert settle(data, None) is None


def test_another_directory_needs_the_files(tiers: tuple[Path, Path], tmp_path: Path) -> None:
    data, cold = tiers
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError, match="cold, which is not what TOPICS_COLD_DIR says"):
        settle(data, other)
    shutil.copy(cold / file_name(3), other)
    assert settle(data, other) == str(other)
    # Noted, so the files at the old place do not count any more.
    assert settle(data, None) == str(other)


def test_a_copy_keeps_its_hands_off_the_files_of_the_original(
    tiers: tuple[Path, Path], tmp_path: Path
) -> None:
    data, cold = tiers
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    with pytest.raises(ConfigError, match="to give them up as lost, remove "):
        settle(copy, None)
    (copy / ".topics.cold").unlink()
    assert settle(copy, None) is None
    assert settle(data, None) == str(cold)


def test_a_directory_that_moved_goes_on_with_its_tier(tiers: tuple[Path, Path], tmp_path: Path) -> None:
    data, cold = tiers
    moved = data.rename(tmp_path / "moved")
    assert settle(moved, cold) == str(cold)
    assert settle(moved, None) == str(cold)


def test_the_second_tier_may_lie_inside_the_directory(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    cold.mkdir()
    assert settle(tmp_path, cold) == str(cold)
    (cold / file_name(1)).touch()
    assert settle(tmp_path, None) == str(cold)


def test_the_first_tier_counts_where_both_have_a_segment(tiers: tuple[Path, Path]) -> None:
    data, cold = tiers
    for directory, number in ((data / "segments", 1), (data / "segments", 2), (cold, 2)):
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

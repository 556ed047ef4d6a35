"""A cold directory is this log's, or it is left as it is; where it lies is known without being told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.storage.cold_tier import Tiers, write_segment
from tests.support.damage import pictured
from topics.core.errors import Explained
from topics.storage.identity import IDENTITY, OWNER
from topics.storage.segment import file_name

NOTE = ".topics.cold"


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    """A log that uses its cold directory: segment 3 lies there."""
    tiers = Tiers(tmp_path)
    assert tiers.use(tiers.cold) == str(tiers.cold)
    tiers.add(3, tiers.cold)
    return tiers


def refused(tiers: Tiers, cold: Path | None, *words: str) -> None:
    """The start is refused, in one line that names the directory, and nothing is touched."""
    directories = [path for path in (tiers.data, cold, tiers.cold) if path is not None]
    before = pictured(*directories)
    with pytest.raises(Explained) as refusal:
        tiers.use(cold)
    text = str(refusal.value)
    assert "\n" not in text
    for word in words:
        assert word in text
    assert pictured(*directories) == before


# Where it is


def test_nothing_is_left_there(tiers: Tiers) -> None:
    shutil.move(tiers.cold / file_name(3), tiers.segments)
    assert tiers.use(None) is None
    # What another server keeps there from now on is not taken for ours.
    (tiers.cold / file_name(7)).touch()
    assert tiers.use(None) is None


def test_another_directory_needs_the_files(tiers: Tiers, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    refused(tiers, other, f"{tiers.cold}, which is not what TOPICS_COLD_DIR says")
    shutil.copy(tiers.cold / file_name(3), other)
    assert tiers.use(other) == str(other)
    # Noted, so the files at the old place do not count any more.
    assert tiers.use(None) == str(other)


def test_files_of_another_log_are_not_those_that_were_left(tiers: Tiers, tmp_path: Path) -> None:
    """The old place was given to another log, which has a segment with the number of ours."""
    shutil.rmtree(tiers.cold)
    another = Tiers(tmp_path, "another")
    another.use(another.cold)
    another.add(3, another.cold)
    assert tiers.use(tmp_path / "new") == str(tmp_path / "new")


def test_a_copy_keeps_its_hands_off_the_files_of_the_original(tiers: Tiers, tmp_path: Path) -> None:
    copy = Tiers(tmp_path, "copy")
    shutil.copytree(tiers.data, copy.data, dirs_exist_ok=True)
    copy.sealed = tiers.sealed
    refused(copy, None, "to give them up as lost, remove ")
    refused(copy, copy.cold, str(tiers.cold), "is a copy")
    (copy.data / NOTE).unlink()
    assert copy.use(None) is None
    refused(copy, copy.cold, str(tiers.cold), "is a copy")
    assert tiers.use(None) == str(tiers.cold)


def test_the_second_tier_may_lie_inside_the_directory(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path)
    cold = tiers.data / "cold"
    assert tiers.use(cold) == str(cold)
    tiers.add(1, cold)
    assert tiers.use(None) == str(cold)


@pytest.mark.parametrize("inner", ["", "segments", "journal", "snapshots", "stages"])
def test_the_second_tier_is_not_the_first(tmp_path: Path, inner: str) -> None:
    """A file that is moved onto itself and then removed where it was is gone."""
    tiers = Tiers(tmp_path)
    refused(tiers, tiers.data / inner, "is part of the data directory")
    tiers.use(None)
    refused(tiers, tiers.data / inner, "is part of the data directory")


# Whose it is


def test_a_directory_of_another_log(tiers: Tiers, tmp_path: Path) -> None:
    another = Tiers(tmp_path, "another")
    refused(another, another.cold, f"the cold directory {tiers.cold} belongs to another log", str(tiers.data))
    # Not even once it has an identity, or files of the same numbers.
    another.use(None)
    another.add(3, another.segments)
    refused(another, another.cold, f"the cold directory {tiers.cold} belongs to another log")


@pytest.mark.parametrize("name", ["notes.txt", file_name(5), "journal"])
def test_a_directory_that_is_not_empty(tmp_path: Path, name: str) -> None:
    tiers = Tiers(tmp_path)
    (tiers.cold / name).mkdir(parents=True)
    refused(tiers, tiers.cold, f"the cold directory {tiers.cold} is not empty", "one of its own")
    tiers.use(tmp_path / "other")
    refused(tiers, tiers.cold, f"the cold directory {tiers.cold} is not empty")


def test_a_fresh_volume_is_empty(tmp_path: Path) -> None:
    """So is what a crash left of a claim."""
    tiers = Tiers(tmp_path)
    for name in ("lost+found", ".topics.lock", OWNER + ".tmp"):
        (tiers.cold / name).mkdir(parents=True)
    (tiers.cold / ".topics.lock").rmdir()
    (tiers.cold / (OWNER + ".tmp")).rmdir()
    (tiers.cold / (OWNER + ".tmp")).write_bytes(b"{")
    assert tiers.use(tiers.cold) == str(tiers.cold)


def test_an_owner_that_cannot_be_read(tiers: Tiers, tmp_path: Path) -> None:
    """The log that has used the directory knows better; no other may."""
    before = owner_of(tiers)
    rotten = before.replace(b"identity", b"identitx")
    (tiers.cold / OWNER).write_bytes(rotten)
    refused(Tiers(tmp_path, "another"), tiers.cold, f"has a file {OWNER} that cannot be read")
    assert tiers.use(tiers.cold) == str(tiers.cold)
    assert owner_of(tiers) == before
    (tiers.cold / OWNER).unlink()
    assert tiers.use(tiers.cold) == str(tiers.cold)
    assert owner_of(tiers) == before


# Without hidden files


def without_hidden_files(tmp_path: Path, name: str = "data") -> Tiers:
    """As `cp data/* new` leaves a log: without identity, owner and note; segments 1 and 2 are cold."""
    tiers = Tiers(tmp_path, name)
    tiers.cold.mkdir(exist_ok=True)
    (tiers.data / "journal").mkdir()
    for number in (1, 2):
        tiers.add(number, tiers.cold)
    return tiers


def owner_of(tiers: Tiers) -> bytes:
    return (tiers.cold / OWNER).read_bytes()


def test_a_cold_directory_is_recognized_by_its_content(tmp_path: Path) -> None:
    tiers = without_hidden_files(tmp_path)
    home = tiers.open(tiers.cold)
    home.release()
    assert home.identity.identity.encode() in owner_of(tiers)
    assert tiers.use(None) == str(tiers.cold)


def test_a_directory_with_other_content_is_another(tmp_path: Path) -> None:
    tiers = without_hidden_files(tmp_path)
    shutil.move(tiers.cold / file_name(2), tiers.segments)
    write_segment(tiers.cold, 1, topic=9)
    refused(tiers, tiers.cold, f"the cold directory {tiers.cold} is not empty")


def test_a_damaged_segment_is_no_proof_of_another_log(tmp_path: Path) -> None:
    tiers = without_hidden_files(tmp_path)
    (tiers.cold / file_name(2)).write_bytes(b"TOPICSSG")
    assert tiers.use(tiers.cold) == str(tiers.cold)


def test_a_copy_does_not_take_a_directory_without_owner(tiers: Tiers, tmp_path: Path) -> None:
    copy = Tiers(tmp_path, "copy")
    shutil.copytree(tiers.data, copy.data, dirs_exist_ok=True)
    copy.sealed = tiers.sealed
    (tiers.cold / OWNER).unlink()
    refused(copy, copy.cold, f"of which {copy.data} is a copy")
    shutil.rmtree(tiers.data)
    assert copy.use(copy.cold) == str(copy.cold)


# What another version wrote


# What went wrong


def test_a_directory_that_is_not_mounted(tiers: Tiers) -> None:
    """Its records must not be taken for lost, which would be announced for good."""
    away = tiers.cold.rename(tiers.cold.with_name("away"))
    refused(tiers, tiers.cold, f"the cold directory {tiers.cold} is empty", "is it mounted?")
    tiers.cold.mkdir()
    refused(tiers, tiers.cold, f"the cold directory {tiers.cold} is empty", f"remove {tiers.data / NOTE}")
    tiers.cold.rmdir()
    away.rename(tiers.cold)
    assert tiers.use(tiers.cold) == str(tiers.cold)
    shutil.rmtree(tiers.cold)
    (tiers.data / NOTE).unlink()
    assert tiers.use(tiers.cold) == str(tiers.cold)


def identity(tiers: Tiers) -> bytes:
    return (tiers.data / IDENTITY).read_bytes()


@pytest.mark.parametrize("content", [None, b"", b'{"identity":"0'])
def test_a_log_that_lost_its_identity_gets_it_back(tiers: Tiers, content: bytes | None) -> None:
    before = identity(tiers)
    (tiers.data / IDENTITY).unlink()
    if content is not None:
        (tiers.data / IDENTITY).write_bytes(content)
    assert tiers.use(tiers.cold) == str(tiers.cold)
    assert identity(tiers) == before
    # Without a cold directory it is simply another one.
    (tiers.data / IDENTITY).unlink()
    shutil.move(tiers.cold / file_name(3), tiers.segments)
    assert tiers.use(None) is None
    assert identity(tiers) != before


def test_another_log_in_the_same_place_does_not_get_it(tiers: Tiers) -> None:
    """Not even with the note of the old one: what lies in the cold directory is not its own."""
    (tiers.data / IDENTITY).unlink()
    tiers.sealed = {3: {(9, 9, 9, 9, 9)}}
    refused(tiers, tiers.cold, "belongs to another log")
    tiers.sealed = {}
    refused(tiers, tiers.cold, "belongs to another log")

"""Nothing is removed from a cold directory, or written over, that this log did not write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.cold_tier import write_segment
from tests.storage.support import FS
from topics.storage.cold_files import ColdFiles
from topics.storage.fileheader import mark_of
from topics.storage.identity import Identity, Owner, write_owner
from topics.storage.segment import Segment, file_name

OURS, OTHERS = Identity("ab" * 16), Identity("cd" * 16)


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """Ours, with a segment of ours (1), one of another log (2), one without a mark (3), and a text (4)."""
    write_owner(FS, str(tmp_path), Owner(OURS.identity, "/data"))
    write_segment(tmp_path, 1, mark=OURS.mark)
    write_segment(tmp_path, 2, mark=OTHERS.mark)
    write_segment(tmp_path, 3)
    (tmp_path / file_name(4)).write_text("not a segment")
    (tmp_path / "notes.txt").write_text("nor this")
    return tmp_path


def opened(cold: Path, *known: int) -> ColdFiles:
    files = ColdFiles(FS, str(cold))
    files.known = frozenset(known)
    return files


def names(cold: Path) -> list[str]:
    return sorted(path.name for path in cold.iterdir() if not path.name.startswith("."))


def segments(*numbers: int) -> list[str]:
    return [file_name(number) for number in numbers]


def test_only_our_own_are_removed(cold: Path) -> None:
    files = opened(cold, 1, 2, 4)
    for number in range(6):
        files.remove(number)
    assert names(cold) == [*segments(2, 3, 4), "notes.txt"]


def test_without_a_mark_it_has_to_be_known(cold: Path) -> None:
    """The disk was full when it was moved here, so nothing said whose directory this is."""
    write_segment(cold, 5)
    write_segment(cold, 6)
    files = opened(cold, 5)
    files.remove(5)
    files.remove(6)
    assert names(cold) == [*segments(1, 2, 3, 4, 6), "notes.txt"]


def test_a_header_that_has_rotted_is_no_mark(cold: Path) -> None:
    """The segment of ours whose header it was has to go with the others."""
    for number in (7, 8):
        path = cold / file_name(number)
        write_segment(cold, number, mark=OURS.mark)
        content = bytearray(path.read_bytes())
        content[13] ^= 1
        path.write_bytes(content)
    files = opened(cold, 7)
    files.remove(7)
    files.remove(8)
    assert names(cold) == [*segments(1, 2, 3, 4, 8), "notes.txt"]


def test_sweeping(cold: Path) -> None:
    write_segment(cold, 5, mark=OURS.mark)
    for number, mark in ((6, OURS.mark), (7, OTHERS.mark), (8, 0)):
        write_segment(cold, number, mark=mark)
        (cold / file_name(number)).rename(cold / (file_name(number) + ".tmp"))
    (cold / "notes.tmp").touch()
    files = opened(cold, 1)
    assert files.sweep(lambda number: number < 3) == [1, 2]
    left = [
        file_name(n) + suffix for n, suffix in ((1, ""), (2, ""), (3, ""), (4, ""), (7, ".tmp"), (8, ".tmp"))
    ]
    assert names(cold) == [*left, "notes.tmp", "notes.txt"]
    assert files.numbers() == {1, 2, 3, 4}


def test_a_segment_that_is_brought_here_is_marked(
    cold: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hot = tmp_path_factory.mktemp("hot")
    write_segment(hot, 5)
    content = (hot / file_name(5)).read_bytes()
    assert opened(cold).put(5, content)
    moved = (cold / file_name(5)).read_bytes()
    assert mark_of(moved) == OURS.mark
    assert moved[32:] == content[32:]
    with Segment(FS, str(cold / file_name(5))) as read:
        assert read.number == 5
    # A second time, as after a crash before the original went.
    assert opened(cold).put(5, content)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_nothing_of_another_is_written_over(cold: Path, number: int) -> None:
    before = (cold / file_name(number)).read_bytes()
    files = opened(cold, *{number} - {3})
    assert not files.put(number, (cold / file_name(1)).read_bytes())
    assert files.refused == {number}
    assert not files.has_room_for(number)
    assert (cold / file_name(number)).read_bytes() == before
    assert names(cold) == [*segments(1, 2, 3, 4), "notes.txt"]


def test_a_damaged_file_stays_where_it_is(cold: Path) -> None:
    files = opened(cold)
    assert not files.put(5, b"TOPICSSG" + bytes(100))
    assert not (cold / file_name(5)).exists()

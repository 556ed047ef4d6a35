"""A log that does not lie where its path says takes no writes, and touches nothing of what lies there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.lab import NodeLab
from tests.support.damage import pictured
from topics.core.errors import ApiError, WritesOff
from topics.engine.node import DirectoryWatch
from topics.storage.segment import file_name


@pytest.fixture
def lab(tmp_path: Path) -> NodeLab:
    """Records in segments, in the journal, and enough for another segment."""
    lab = NodeLab(tmp_path / "place" / "data")
    lab.write_each("t", 9)
    lab.checkpoint(everything=True)
    lab.write_each("t", 6)
    return lab


def look(lab: NodeLab) -> WritesOff | None:
    DirectoryWatch(lab.node.home, lab.engine).look()
    return lab.engine.writes_off


def moved_away(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


def replaced_by_another(data: Path) -> None:
    moved_away(data)
    data.mkdir()


def replaced_by_a_copy(data: Path) -> None:
    moved_away(data)
    shutil.copytree(data.with_name("elsewhere"), data)


def replaced_by_a_file(data: Path) -> None:
    moved_away(data)
    data.write_text("nothing to see here")


def under_another_name(data: Path) -> None:
    """The parent was moved."""
    data.parent.rename(data.parent.with_name("moved"))


ELSEWHERE = [moved_away, replaced_by_another, replaced_by_a_copy, replaced_by_a_file, shutil.rmtree]


def emptied(data: Path) -> None:
    for path in data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def without_its_journal(data: Path) -> None:
    (data / "journal").rename(data / "journal.old")


def with_another_journal(data: Path) -> None:
    shutil.copytree(data / "journal", data / "copy")
    shutil.rmtree(data / "journal")
    (data / "copy").rename(data / "journal")


@pytest.mark.parametrize(
    "happens",
    [*ELSEWHERE, under_another_name, emptied, without_its_journal, with_another_journal],
    ids=lambda happens: happens.__name__,
)
def test_writes_end(lab: NodeLab, happens: Callable[[Path], None]) -> None:
    assert look(lab) is None
    happens(lab.directory)
    assert look(lab) is WritesOff.DIRECTORY_REPLACED
    with pytest.raises(ApiError, match="replaced or moved away; writes are off until restart"):
        lab.write("t", 1)
    lab.kill()


@pytest.mark.parametrize("happens", ELSEWHERE, ids=lambda happens: happens.__name__)
def test_nothing_is_touched_in_between(lab: NodeLab, happens: Callable[[Path], None]) -> None:
    """Upkeep may come before the next look: it makes and removes files by their paths."""
    happens(lab.directory)
    before = pictured(lab.directory)
    lab.engine.rotate()
    with pytest.raises(OSError, match="replaced or moved away"):
        lab.checkpoint(everything=True)
    with pytest.raises(OSError, match="replaced or moved away"):
        lab.checkpointer.write_snapshot([b""])
    with pytest.raises(OSError, match="replaced or moved away"):
        lab.checkpointer.remove([str(lab.directory / "segments" / file_name(1))])
    assert pictured(lab.directory) == before
    lab.kill()
    assert pictured(lab.directory) == before


def test_what_lies_elsewhere_is_not_lost(lab: NodeLab) -> None:
    """It may come back, and the start after that finds everything."""
    lab.restart()
    away = lab.directory.rename(lab.directory.with_name("away"))
    with pytest.raises(OSError, match="No such file"):
        lab.seqs("t")
    assert lab.topic("t").totals.damage == 0
    away.rename(lab.directory)
    assert lab.seqs("t") == list(range(1, 16))
    lab.restart()
    assert lab.seqs("t") == list(range(1, 16))
    lab.kill()


def test_a_stop_looks_once_more(lab: NodeLab) -> None:
    """Its last checkpoint must not go into a directory that was replaced just now."""

    async def run() -> None:
        lab.node.run()
        replaced_by_a_copy(lab.directory)
        before.update(pictured(lab.directory))
        await lab.node.close()

    before: dict[str, bytes] = {}
    asyncio.run(run())
    assert pictured(lab.directory) == before
    # What was acknowledged is where it went.
    again = NodeLab(lab.directory.with_name("elsewhere"))
    assert again.seqs("t") == list(range(1, 16))
    again.kill()

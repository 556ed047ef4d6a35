"""A data directory and a cold one, with segments as a log would have written them."""

from __future__ import annotations

from pathlib import Path

from tests.storage.support import FS, columns
from topics.storage.cold_choice import SealedRun
from topics.storage.directories import Directories
from topics.storage.home import Home
from topics.storage.segment import SegmentWriter, file_name

# Of segments that are not in a cold directory.
NO_MARK = 0


def write_segment(directory: Path, number: int, topic: int = 1, mark: int = NO_MARK) -> SealedRun:
    """A segment with one run, of which the seq and the times follow from its number."""
    writer = SegmentWriter(number, mark)
    entry = writer.add(topic, columns(3, base=number * 10), None)
    writer.write(FS, str(directory), number)
    return (topic, entry.base, entry.count, entry.first_ts, entry.last_ts)


class Tiers:
    """What the log's snapshots say is in `sealed`."""

    def __init__(self, place: Path, name: str = "data") -> None:
        self.data, self.cold = place / name, place / "cold"
        self.segments = self.data / "segments"
        self.sealed: dict[int, set[SealedRun]] = {}
        self.segments.mkdir(parents=True)

    def add(self, number: int, directory: Path, mark: int = NO_MARK) -> Path:
        """A segment of this log."""
        self.sealed[number] = {write_segment(directory, number, mark=mark)}
        return directory / file_name(number)

    def open(self, cold: Path | None) -> Home:
        dirs = Directories(str(self.data), None if cold is None else str(cold))
        return Home(FS, dirs, lambda: self.sealed)

    def use(self, cold: Path | None) -> str | None:
        """Open it and leave it; returns where its cold directory is."""
        home = self.open(cold)
        home.release()
        return home.cold_dir

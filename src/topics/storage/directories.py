"""The names in a data directory."""

import os
from collections.abc import Callable
from contextlib import suppress

from topics.storage import fileheader, journal, reserve, segment, snapshot, witness
from topics.storage.fileheader import FILE_HEADER_BYTES, OtherFormat
from topics.storage.filesystem import Filesystem, numbered_files, unfinished_files
from topics.storage.identity import IDENTITY

# The file that a process locks beside the directory itself.
LOCK = ".topics.lock"


class Directories:
    """Where a server keeps what it writes. `cold`: where old segments move, if there is such a place."""

    def __init__(self, root: str, cold: str | None = None) -> None:
        self.root = root
        # The directory of a file there is compared with it.
        self.cold = cold if cold is None else cold.rstrip("/") or "/"
        self.journal = os.path.join(root, "journal")
        self.segments = os.path.join(root, "segments")
        self.snapshots = os.path.join(root, "snapshots")
        # Parts of batches that are not committed yet.
        self.stages = os.path.join(root, "stages")
        self.witness = os.path.join(root, witness.FILE_NAME)
        # Room that removals find on a full disk.
        self.reserve = os.path.join(root, reserve.FILE_NAME)
        # Names the directory of the second tier, if there is one.
        self.cold_note = os.path.join(root, ".topics.cold")
        # Says which log this is.
        self.identity = os.path.join(root, IDENTITY)
        # Held by the process that works in here.
        self.lock = os.path.join(root, LOCK)

    @property
    def entries(self) -> tuple[str, ...]:
        """All there can be."""
        directories = (self.journal, self.segments, self.snapshots, self.stages)
        return (*directories, self.witness, self.reserve, self.identity, self.cold_note, self.lock)

    def has_log(self, fs: Filesystem) -> bool:
        """Whether a server has written anything here."""
        written = (self.journal, self.snapshots, self.segments)
        return any(fs.exists(path) and fs.list(path) for path in written)

    def journal_path(self, base: int) -> str:
        return os.path.join(self.journal, journal.file_name(base))

    def snapshot_path(self, number: int) -> str:
        return os.path.join(self.snapshots, snapshot.file_name(number))

    def segment_paths(self, fs: Filesystem) -> dict[int, str]:
        """Every segment by its number. The first tier counts where both have it."""
        paths: dict[int, str] = {}
        for directory in filter(None, (self.cold, self.segments)):
            for number in numbered_files(fs, directory, segment.file_name):
                paths[number] = os.path.join(directory, segment.file_name(number))
        return paths


def require_format(fs: Filesystem, dirs: Directories) -> None:
    """Raise `OtherFormat` if another version of the program has written one of the directories."""
    journals = [dirs.journal_path(base) for base in numbered_files(fs, dirs.journal, journal.file_name)]
    _require_format_of(fs, journals, journal.MAGIC, f"the data directory {dirs.root}")
    if dirs.cold is not None:
        # There may be very many segments, and one log wrote all of them.
        numbers = numbered_files(fs, dirs.cold, segment.file_name)[-1:]
        segments = [os.path.join(dirs.cold, segment.file_name(number)) for number in numbers]
        _require_format_of(fs, segments, segment.MAGIC, f"the cold directory {dirs.cold}")


def _require_format_of(fs: Filesystem, paths: list[str], magic: bytes, what: str) -> None:
    for path in paths:
        try:
            # A file that cannot be read says nothing here: its reader reports it.
            with suppress(OSError), fs.open(path) as file:
                fileheader.decode(file.read(FILE_HEADER_BYTES, 0), magic)
        except OtherFormat as error:
            raise OtherFormat(what, error.found) from None


def sweep_segments(fs: Filesystem, directory: str, is_wanted: Callable[[int], bool]) -> list[int]:
    """Remove what was never completed, and segments that are not wanted; returns the numbers of the rest."""
    numbers = numbered_files(fs, directory, segment.file_name)
    unwanted = [segment.file_name(number) for number in numbers if not is_wanted(number)]
    for name in (*unfinished_files(fs, directory), *unwanted):
        fs.remove(os.path.join(directory, name))
    return [number for number in numbers if is_wanted(number)]

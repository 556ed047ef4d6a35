"""The names in a data directory, and where its second tier lies."""

import os
from collections.abc import Callable

from topics.storage import journal, segment, snapshot, witness
from topics.storage.filesystem import (
    Filesystem,
    numbered_files,
    read_file,
    unfinished_files,
    write_file_atomically,
)
from topics.values import ConfigError


class Directories:
    """Where a server keeps what it writes. `cold`: where old segments move, if there is such a place."""

    def __init__(self, root: str, cold: str | None = None) -> None:
        self.root = root
        self.cold = cold
        self.journal = os.path.join(root, "journal")
        self.segments = os.path.join(root, "segments")
        self.snapshots = os.path.join(root, "snapshots")
        # Parts of batches that are not committed yet.
        self.stages = os.path.join(root, "stages")
        self.witness = os.path.join(root, witness.FILE_NAME)
        # Names the directory of the second tier, if there is one.
        self.cold_note = os.path.join(root, ".topics.cold")
        # Held by the process that works in here.
        self.lock = os.path.join(root, ".topics.lock")

    @property
    def entries(self) -> tuple[str, ...]:
        """All there can be."""
        directories = (self.journal, self.segments, self.snapshots, self.stages)
        return (*directories, self.witness, self.cold_note, self.lock)

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


def sweep_segments(fs: Filesystem, directory: str, is_wanted: Callable[[int], bool]) -> list[int]:
    """Remove what was never completed, and segments that are not wanted; returns the numbers of the rest."""
    numbers = numbered_files(fs, directory, segment.file_name)
    unwanted = [segment.file_name(number) for number in numbers if not is_wanted(number)]
    for name in (*unfinished_files(fs, directory), *unwanted):
        fs.remove(os.path.join(directory, name))
    return [number for number in numbers if is_wanted(number)]


def settle_cold_dir(fs: Filesystem, dirs: Directories) -> str | None:
    """Where the second tier is: as configured, or where segments were left when there was one.

    A note in the data directory remembers it. Without the note, a start that leaves the tier out would take
    everything in there for lost, and say so for good. Raises when segments of this directory lie where the
    note says, and that is not the place that was configured.
    """
    root = os.path.realpath(dirs.root)
    noted_root, noted = _read_note(fs, dirs.cold_note)
    if dirs.cold is not None and os.path.realpath(dirs.cold) == noted and root == noted_root:
        return dirs.cold
    left = _segments(fs, noted) - _segments(fs, dirs.segments) - _segments(fs, dirs.cold)
    if left and (dirs.cold is not None or root != noted_root):
        # A copy of a directory must not touch files that belong to the original.
        raise ConfigError(
            f"segments of {noted_root} lie in {noted}, which is not what TOPICS_COLD_DIR says:"
            f" bring them there, or name that directory; to give them up as lost, remove {dirs.cold_note}"
        )
    if left:
        return noted
    if dirs.cold is not None:
        note = f"{root}\n{os.path.realpath(dirs.cold)}\n"
        write_file_atomically(fs, dirs.root, os.path.basename(dirs.cold_note), [os.fsencode(note)])
    elif noted is not None:
        # Nothing of ours is there any more: what others put there later is none of our business.
        fs.remove(dirs.cold_note)
    return dirs.cold


def _read_note(fs: Filesystem, path: str) -> tuple[str, str | None]:
    """The data directory when the note was written, and its second tier."""
    if not fs.exists(path):
        return "", None
    root, _, noted = os.fsdecode(read_file(fs, path)).removesuffix("\n").partition("\n")
    return root, noted or None


def _segments(fs: Filesystem, directory: str | None) -> set[int]:
    return set() if directory is None else set(numbered_files(fs, directory, segment.file_name))

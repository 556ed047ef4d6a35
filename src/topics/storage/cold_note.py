"""A note of where the second tier of a data directory lies.

Without it, a start that leaves the tier out would take everything in there for lost, and say so for good.
"""

from __future__ import annotations

import os

from topics.storage import segment
from topics.storage.directories import Directories
from topics.storage.filesystem import Filesystem, numbered_files, write_file_atomically
from topics.values.errors import ConfigError


def settle_cold_dir(fs: Filesystem, dirs: Directories, cold_dir: str | None) -> str | None:
    """Where the second tier is: as configured, or where segments were left when there was one.

    Raises when those are neither at the old place of this very directory nor at the new one.
    """
    root = os.path.realpath(dirs.root)
    noted_root, noted = _read(fs, dirs.cold_note)
    if cold_dir is not None and os.path.realpath(cold_dir) == noted and root == noted_root:
        return cold_dir
    left = _segments(fs, noted) - _segments(fs, dirs.segments) - _segments(fs, cold_dir)
    if left and (cold_dir is not None or root != noted_root):
        # A copy of a directory must not touch files that belong to the original.
        raise ConfigError(
            f"segments of {noted_root} lie in {noted}, which is not what TOPICS_COLD_DIR says:"
            f" bring them there, or name that directory; to give them up as lost, remove {dirs.cold_note}"
        )
    if left:
        return noted
    if cold_dir is not None:
        note = f"{root}\n{os.path.realpath(cold_dir)}\n"
        write_file_atomically(fs, dirs.root, os.path.basename(dirs.cold_note), [os.fsencode(note)])
    elif noted is not None:
        # Nothing of ours is there any more: what others put there later is none of our business.
        fs.remove(dirs.cold_note)
    return cold_dir


def _read(fs: Filesystem, path: str) -> tuple[str, str | None]:
    """The data directory when the note was written, and its second tier."""
    if not fs.exists(path):
        return "", None
    file = fs.open(path)
    try:
        root, _, noted = os.fsdecode(file.read(file.size(), 0)).removesuffix("\n").partition("\n")
    finally:
        file.close()
    return root, noted or None


def _segments(fs: Filesystem, directory: str | None) -> set[int]:
    return set() if directory is None else set(numbered_files(fs, directory, segment.file_name))

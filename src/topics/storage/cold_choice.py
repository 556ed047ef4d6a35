"""Where a log's cold directory is, and whether the log may use it. Nothing is changed by looking.

It is as configured, or where segments were left when there was one: a note in the data directory remembers
that. Without the note, a start that leaves the tier out would take everything in there for lost, and say so
for good. The directory itself says whose it is. One that says nothing may be used if it is empty, or if it
has segments of this log: people copy directories without their hidden files, and files rot.
"""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from topics.core import ConfigError
from topics.storage import segment
from topics.storage.directories import LOCK, Directories
from topics.storage.fileheader import ForeignFile
from topics.storage.filesystem import TEMPORARY, Filesystem, numbered_files, read_file
from topics.storage.identity import IDENTITY, OWNER, Identity, Owner, read_identity, read_owner
from topics.storage.segment import Segment, SegmentDamaged

# Topic, first seq, count, first and last time: no other log has a run like this one.
SealedRun: TypeAlias = tuple[int, int, int, int, int]
# For each segment to which the log's snapshots refer, the runs that it has to hold.
SealedRuns: TypeAlias = Callable[[], Mapping[int, Collection[SealedRun]]]
# What may lie in a directory that counts as empty: what a mount brings along, what a crash left of a claim.
_NOTHING = {"lost+found", LOCK, OWNER + TEMPORARY}


class ForeignDirectory(ConfigError):
    """A cold directory that is not this log's."""


@dataclass(slots=True)
class ColdChoice:
    path: str | None
    # None for a log that has none yet.
    identity: Identity | None


def choose_cold_dir(fs: Filesystem, dirs: Directories, sealed: SealedRuns) -> ColdChoice:
    return _Choosing(fs, dirs, sealed).choice()


class _Choosing:
    def __init__(self, fs: Filesystem, dirs: Directories, sealed: SealedRuns) -> None:
        self._fs = fs
        self._dirs = dirs
        self._read_sealed = sealed
        self._root = os.path.realpath(dirs.root)
        self._noted_root, self._noted = read_note(fs, dirs.cold_note)
        self._identity = read_identity(fs, dirs.root)

    @cached_property
    def _sealed(self) -> Mapping[int, Collection[SealedRun]]:
        return self._read_sealed()

    def choice(self) -> ColdChoice:
        self._refuse_own_directories()
        dirs, left = self._dirs, self._left()
        if left and (dirs.cold is not None or self._root != self._noted_root):
            # A copy of a directory must not touch files that belong to the original.
            raise ConfigError(
                f"segments of {self._noted_root} lie in {self._noted}, which is not what TOPICS_COLD_DIR"
                " says: bring them there, or name that directory; to give them up as lost, remove"
                f" {dirs.cold_note}"
            )
        path = self._noted if left else dirs.cold
        return ColdChoice(None, self._identity) if path is None else self._examined(path)

    def _refuse_own_directories(self) -> None:
        dirs = self._dirs
        if self._fs.exists(os.path.join(dirs.root, OWNER)):
            raise ConfigError(f"{dirs.root} is the cold directory of a log, and cannot be a data directory")
        own = (dirs.root, dirs.journal, dirs.segments, dirs.snapshots, dirs.stages)
        if dirs.cold is not None and os.path.realpath(dirs.cold) in map(os.path.realpath, own):
            raise ConfigError(f"the cold directory {dirs.cold} is part of the data directory {dirs.root}")

    def _left(self) -> set[int]:
        """Segments of this log that lie where the note says, and are not where they were looked for."""
        if self._noted is None:
            return set()
        owner = read_owner(self._fs, self._noted)
        if owner is not None and self._identity is not None and owner.identity != self._identity.identity:
            return set()  # another log's by now
        found = self._numbers(self._dirs.segments) | self._numbers(self._dirs.cold)
        return self._numbers(self._noted) - found

    def _numbers(self, directory: str | None) -> set[int]:
        return set() if directory is None else set(numbered_files(self._fs, directory, segment.file_name))

    # --- one directory ----------------------------------------------------------------------------------

    def _examined(self, path: str) -> ColdChoice:
        owner = read_owner(self._fs, path)
        if owner is None:
            return self._examined_unowned(path)
        if self._is_copy(owner.data_dir):
            raise _foreign(path, f"belongs to the log in {owner.data_dir}, of which {self._root} is a copy")
        if self._identity is None and self._is_ours_in_spite(owner, path):
            return ColdChoice(path, Identity(owner.identity))
        if self._identity is None or owner.identity != self._identity.identity:
            raise _foreign(path, f"belongs to another log, the one in {owner.data_dir}")
        return ColdChoice(path, self._identity)

    def _is_copy(self, original: str) -> bool:
        """Tell whether the other directory still exists and has the identity of this log."""
        if self._identity is None or self._fs.is_same(original, self._dirs.root):
            return False
        with suppress(OSError):  # another log's directory may be closed to us
            there = read_identity(self._fs, original)
            return there is not None and there.identity == self._identity.identity
        return False

    def _is_ours_in_spite(self, owner: Owner, path: str) -> bool:
        """Where the data directory has lost its identity, the rest has to fit all the more."""
        is_noted = self._noted == os.path.realpath(path) and owner.data_dir == self._root == self._noted_root
        return is_noted and (not self._numbers(path) or self._holds_what_is_missing(path))

    def _examined_unowned(self, path: str) -> ColdChoice:
        fs = self._fs
        is_noted = self._noted == os.path.realpath(path)
        if fs.exists(os.path.join(path, OWNER)) and not is_noted:
            raise _foreign(path, f"has a file {OWNER} that cannot be read")
        if fs.exists(os.path.join(path, IDENTITY)):
            raise _foreign(path, "is the data directory of a log")
        if not set(fs.list(path)) - _NOTHING:
            if is_noted and self._missing(path):
                raise ConfigError(
                    f"the cold directory {path} is empty, and segments of this log were there: is it mounted?"
                    f" To give them up as lost, remove {self._dirs.cold_note}"
                )
            return ColdChoice(path, self._identity)
        if is_noted and self._is_copy(self._noted_root):
            raise _foreign(path, f"belongs to the log in {self._noted_root}, of which {self._root} is a copy")
        if not is_noted and not self._holds_what_is_missing(path):
            raise _foreign(path, f"is not empty, and {self._root} has not used it so far")
        return ColdChoice(path, self._identity)

    # --- what the log knows of its segments -------------------------------------------------------------

    def _missing(self, path: str) -> set[int]:
        return set(self._sealed) - self._numbers(self._dirs.segments) - self._numbers(path)

    def _holds_what_is_missing(self, path: str) -> bool:
        """Whether segments are here that the log refers to and has nowhere else, and none of another."""
        expected = set(self._sealed) & self._numbers(path) - self._numbers(self._dirs.segments)
        found = {number: self._runs(path, number) for number in expected}
        readable = {number: runs for number, runs in found.items() if runs is not None}
        return bool(readable) and all(runs.issuperset(self._sealed[n]) for n, runs in readable.items())

    def _runs(self, path: str, number: int) -> set[SealedRun] | None:
        """What a segment holds; None where it cannot be read."""
        try:
            with Segment(self._fs, os.path.join(path, segment.file_name(number))) as found:
                return {(e.topic_id, e.base, e.count, e.first_ts, e.last_ts) for e in found.entries}
        except (SegmentDamaged, ForeignFile, OSError):
            return None


def _foreign(path: str, what: str) -> ForeignDirectory:
    return ForeignDirectory(f"the cold directory {path} {what}: this log needs one of its own")


def read_note(fs: Filesystem, path: str) -> tuple[str, str | None]:
    """The data directory when the note was written, and its second tier."""
    if not fs.exists(path):
        return "", None
    root, _, noted = os.fsdecode(read_file(fs, path)).removesuffix("\n").partition("\n")
    return root, noted or None

"""A data directory without a server: what it holds, and opening it.

A function that needs a node gets an `OpenNode` from its caller, because nodes are put together above.
"""

import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

from topics.core import Clock, ConfigError, Settings, UserMistake
from topics.flow.routers.registry import Routers
from topics.log import Checkpointer, Engine, SnapshotState, decode
from topics.storage import (
    Directories,
    Filesystem,
    ForeignDirectory,
    SealedRun,
    SnapshotStore,
    UntouchedDisk,
    choose_cold_dir,
    require_format,
)


class Steps:
    """Without a person who waits, nothing is told; a terminal overrides all three."""

    def begin(self, text: str, total: float | None = None) -> None:
        """The next thing to be done; without a total, it is not known how long it takes."""

    def advance(self, by: float = 1) -> None:
        """So much more of it is done."""

    def reach(self, value: float, total: float | None = None) -> None:
        """So much of it is done."""


class OpenedNode(Protocol):
    """What of a node is needed to look at a directory, or to put it in order."""

    engine: Engine
    routers: Routers
    checkpointer: Checkpointer

    def recover(self, note: Callable[[float], None] = ..., /) -> None: ...

    def leave(self, *, clean: bool) -> None: ...


OpenNode: TypeAlias = Callable[[Settings, Filesystem | None, Clock | None], OpenedNode]


def directories_of(settings: Settings) -> Directories:
    """Return the directories of a log.

    Raises if there is no data directory, if another version of the program wrote it, or if the cold directory
    belongs to another log.
    """
    dirs = Directories(settings.data_dir, settings.cold_dir)
    if not os.path.isdir(dirs.root):
        raise UserMistake(f"there is no directory {dirs.root}")
    if not os.path.isdir(dirs.journal):
        raise UserMistake(f"{dirs.root} is not a data directory: it has no journal")
    disk = UntouchedDisk()
    require_format(disk, dirs)
    try:
        choose_cold_dir(disk, dirs, lambda: sealed_runs(disk, dirs))
    except ForeignDirectory:
        raise
    except ConfigError:
        pass  # what a server cannot start with can still be looked at
    return dirs


def require_all_segments(fs: Filesystem, dirs: Directories) -> None:
    """Opened without some of them, a directory would announce their records as lost, for good."""
    present = dirs.segment_paths(fs)
    for state in snapshot_states(fs, dirs).values():
        for topic in state.topics:
            for run in topic.runs:
                if run.segment and run.segment not in present:
                    raise UserMistake(
                        f"segment {run.segment} of topic {topic.name} is missing; if there is a "
                        "cold directory, name it with --cold-dir, otherwise see what topics check says"
                    )


def sealed_runs(fs: Filesystem, dirs: Directories) -> dict[int, set[SealedRun]]:
    """The runs that snapshots say are sealed, by the number of their segment."""
    found: dict[int, set[SealedRun]] = {}
    for state in snapshot_states(fs, dirs).values():
        for topic in state.topics:
            for run in topic.runs:
                if run.segment:
                    key = (topic.id, run.base, run.count, run.first_ts, run.last_ts)
                    found.setdefault(run.segment, set()).add(key)
    return found


def snapshot_states(fs: Filesystem, dirs: Directories) -> dict[int, SnapshotState]:
    """The snapshots that count, by number; without any that are damaged."""
    bodies = SnapshotStore(fs, dirs.snapshots).newest()
    decoded = {number: decode(body) for number, body in bodies.items()}
    return {number: state for number, state in decoded.items() if state is not None}

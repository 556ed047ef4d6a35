"""Where a backup comes from: files that stay as they are, of a running server or of a stopped one."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topics.keep.directory import directories_of, require_all_segments, snapshot_states
from topics.log import SnapshotState, decode
from topics.storage import (
    Damage,
    Directories,
    Frame,
    JournalReader,
    Kind,
    UntouchedDisk,
    Witness,
    read_file,
    snapshot,
)
from topics.values import Settings


@dataclass(slots=True)
class Source:
    data_dir: str
    now_ms: int
    topics: int
    position: int
    snapshots: dict[int, str]
    segments: dict[int, str]
    # Path and base of every journal file that is needed, ascending.
    journal: list[tuple[str, int]]
    # To be called now and then, so that the files stay.
    keep: Callable[[], None]

    def states(self) -> list[SnapshotState]:
        """What its snapshots say, the older one first."""
        bodies = (snapshot.decode(read_file(UntouchedDisk(), path)) for path in self.snapshots.values())
        states = (decode(body) for body in bodies if body is not None)
        return sorted((state for state in states if state is not None), key=lambda state: state.position)


@contextmanager
def stopped_server(settings: Settings) -> Iterator[Source]:
    """A directory without a server: it is locked meanwhile, and nothing in it changes."""
    fs, dirs = UntouchedDisk(), directories_of(settings)
    lock = fs.lock(dirs.lock)
    try:
        require_all_segments(fs, dirs)
        yield _describe(fs, dirs)
    finally:
        fs.unlock(lock)


def _describe(fs: UntouchedDisk, dirs: Directories) -> Source:
    states = snapshot_states(fs, dirs)
    start = min((state.replay_from for state in states.values()), default=0)
    witness = Witness(fs, dirs.root).previous
    reader = JournalReader(fs, dirs.journal, start=start, proven=witness.proven)
    now = max((witness.clock_ms, *(state.clock_ms for state in states.values())))
    newest = max(states.values(), key=lambda state: state.position, default=None)
    topics = set() if newest is None else {topic.id for topic in newest.topics}
    for item in reader.frames():
        if not isinstance(item, Damage) and item.kind != Kind.CLOCK:
            now = max(now, item.ts)
            if newest is None or item.position >= newest.position:
                _follow(item, topics)
    used = {run.segment for state in states.values() for topic in state.topics for run in topic.runs}
    paths = dirs.segment_paths(fs)
    return Source(
        os.path.abspath(dirs.root),
        now,
        len(topics),
        reader.end,
        {number: dirs.snapshot_path(number) for number in states},
        {number: paths[number] for number in sorted(used) if number},
        [(dirs.journal_path(file.base), file.base) for file in reader.files() if file.end > start],
        lambda: None,
    )


def _follow(frame: Frame, topics: set[int]) -> None:
    """Which topics there are after this frame."""
    if frame.kind == Kind.CREATE:
        topics.add(frame.topic_id)
    elif frame.kind == Kind.DROP:
        topics.discard(frame.topic_id)

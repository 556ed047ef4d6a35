"""Taking a backup: snapshots and journal are copied each time, segments once for all backups.

source (files that stay as they are) ─▶ a directory of backups ─▶ the manifest, written last
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from topics.core import Settings, UserMistake
from topics.log import SnapshotState, decode, decode_import
from topics.ops.backup_directory import BackupStore, Copied, Manifest
from topics.ops.directory import Steps, directories_of, require_all_segments, snapshot_states
from topics.storage import (
    CREATIONS,
    FILE_HEADER_BYTES,
    FORMAT,
    Damage,
    Directories,
    Frame,
    Hold,
    Identity,
    JournalReader,
    Kind,
    Segment,
    SegmentDamaged,
    UntouchedDisk,
    Witness,
    read_file,
    read_identity,
    snapshot,
)


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
    # None if the directory has lost it.
    identity: Identity | None = None

    def states(self) -> list[SnapshotState]:
        """What its snapshots say, the older one first."""
        bodies = (snapshot.decode(read_file(UntouchedDisk(), path)) for path in self.snapshots.values())
        states = (decode(body) for body in bodies if body is not None)
        return sorted((state for state in states if state is not None), key=lambda state: state.position)


@contextmanager
def stopped_server(settings: Settings) -> Iterator[Source]:
    """A directory without a server: it is locked meanwhile, and nothing in it changes."""
    fs, dirs = UntouchedDisk(), directories_of(settings)
    hold = Hold(fs, dirs.root)
    try:
        require_all_segments(fs, dirs)
        yield _describe(fs, dirs)
    finally:
        hold.release()


def _describe(fs: UntouchedDisk, dirs: Directories) -> Source:
    states = snapshot_states(fs, dirs)
    start = min((state.replay_from for state in states.values()), default=0)
    witness = Witness(fs, dirs.root).previous
    reader = JournalReader(fs, dirs.journal, start=start, proven=witness.proven)
    now, set_back = 0, -1
    adopted: set[int] = set()
    newest = max(states.values(), key=lambda state: state.position, default=None)
    topics = set() if newest is None else {topic.id for topic in newest.topics}
    for item in reader.frames():
        if not isinstance(item, Damage) and item.kind != Kind.CLOCK:
            if item.kind == Kind.CLOCK_SET_BACK:
                now, set_back = item.ts, item.position
            elif item.kind == Kind.ADOPT:
                adopted.add(decode_import(item).segment)
            now = max(now, item.clock_ms)
            if newest is None or item.position >= newest.position:
                _follow(item, topics)
    times = (state.clock_ms for state in states.values() if state.position > set_back)
    now = max(now, witness.clock_ms, *times)
    used = {run.segment for state in states.values() for topic in state.topics for run in topic.runs}
    paths = dirs.segment_paths(fs)
    # Of those that the journal speaks of, snapshots may have done without for long.
    used |= adopted & paths.keys()
    return Source(
        os.path.abspath(dirs.root),
        now,
        len(topics),
        reader.end,
        {number: dirs.snapshot_path(number) for number in states},
        {number: paths[number] for number in sorted(used) if number},
        [(dirs.journal_path(file.base), file.base) for file in reader.files() if file.end > start],
        lambda: None,
        read_identity(fs, dirs.root),
    )


def _follow(frame: Frame, topics: set[int]) -> None:
    """Which topics there are after this frame."""
    if frame.kind in CREATIONS:
        topics.add(frame.topic_id)
    elif frame.kind == Kind.DROP:
        topics.discard(frame.topic_id)


class Backup:
    """One backup in the making."""

    def __init__(self, store: BackupStore, source: Source, steps: Steps) -> None:
        if Path(store.directory).resolve().is_relative_to(Path(source.data_dir).resolve()):
            raise UserMistake(f"{store.directory} lies inside the data directory {source.data_dir}")
        self._store = store
        self._source = source
        self._steps = steps
        self._disk = UntouchedDisk()
        self._name = _new_name(store, source.now_ms)
        self.copied_bytes = 0
        # Files that were damaged or missing where they came from.
        self.damaged: list[str] = []

    def take(self) -> Manifest:
        source, store = self._source, self._store
        known = store.known_segments()
        store.begin(self._name)
        files = [*self._copy_snapshots(), *self._copy_journal()]
        segments, flags = self._copy_segments(known)
        files.append(store.add_flags(self._name, flags))
        if source.identity is not None:
            files.append(store.add_identity(self._name, source.identity))
        states = source.states()
        manifest = Manifest(
            FORMAT,
            self._name,
            int(time.time() * 1000),
            # The clock may have been set back since.
            min(states[0].clock_ms, source.now_ms) if states else 0,
            source.now_ms,
            source.position,
            source.data_dir,
            source.topics,
            files,
            segments,
        )
        store.finish(manifest)
        return manifest

    def _moved(self, size: int) -> None:
        self.copied_bytes += size
        self._steps.advance(size)
        self._source.keep()

    def _copy_snapshots(self) -> list[Copied]:
        copied = []
        for number, path in self._source.snapshots.items():
            name = f"snapshots/{snapshot.file_name(number)}"
            with self._disk.open(path) as file:
                copied.append(self._store.add(self._name, name, file, file.size(), self._moved))
        return copied

    def _copy_journal(self) -> list[Copied]:
        self._steps.begin("journal")
        copied = []
        for at, (path, base) in enumerate(self._source.journal):
            following = [base for _, base in self._source.journal[at + 1 :]]
            size = FILE_HEADER_BYTES + min([self._source.position, *following]) - base
            name = f"journal/{os.path.basename(path)}"
            with self._disk.open(path) as file:
                copied.append(self._store.add(self._name, name, file, min(size, file.size()), self._moved))
        return copied

    def _copy_segments(self, known: dict[str, Copied]) -> tuple[dict[int, Copied], dict[int, Any]]:
        segments, flags = {}, {}
        present = {n: path for n, path in self._source.segments.items() if os.path.exists(path)}
        self.damaged += sorted(set(self._source.segments.values()).difference(present.values()))
        self._steps.begin("segments", sum(map(os.path.getsize, present.values())))
        for number, path in present.items():
            file = self._disk.open(path)
            try:
                segment: Segment | None = Segment(self._disk, path)
            except SegmentDamaged:
                segment = None
            taken = self._store.add_segment(number, file, segment, known, self._moved)
            if segment is not None:
                segment.close()
            file.close()
            segments[number] = taken.copied
            if taken.flags:
                flags[number] = taken.flags
            if taken.is_damaged:
                self.damaged.append(path)
            if not taken.is_new:
                self._steps.advance(taken.copied.size)
            self._source.keep()
        return segments, flags


def _new_name(store: BackupStore, now_ms: int) -> str:
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    taken = set(store.names())
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 10_000))) if n not in taken)

"""Where a backup comes from: a running server that holds its files still, or a directory without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from topics.cli.offline import require_all_segments, require_data_dir
from topics.cli.work import UserMistake
from topics.client import Client, TopicsError
from topics.log.seal.snapshot_state import SnapshotState, decode
from topics.storage import segment as segment_files
from topics.storage import snapshot as snapshot_files
from topics.storage.directories import Directories
from topics.storage.frame import Frame, Kind
from topics.storage.journal import file_name as journal_file_name
from topics.storage.journal_reader import Damage, JournalReader
from topics.storage.snapshot import SnapshotStore
from topics.storage.untouched import UntouchedDisk
from topics.storage.witness import Witness
from topics.values.settings import Settings

# The lease of a hold is a minute.
RENEW_S = 15.0


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
        fs = UntouchedDisk()
        found = []
        for path in self.snapshots.values():
            file = fs.open(path)
            body = snapshot_files.decode(file.read(file.size(), 0))
            file.close()
            state = None if body is None else decode(body)
            if state is not None:
                found.append(state)
        return sorted(found, key=lambda state: state.position)


@contextmanager
def running_server(client: Client) -> Iterator[Source]:
    """The server keeps these files as they are until the block ends."""
    with client:
        yield from _held(client)


def _held(client: Client) -> Iterator[Source]:
    hold = client.hold_files()
    renewed = time.monotonic()

    def keep() -> None:
        nonlocal renewed
        if time.monotonic() - renewed > RENEW_S:
            client.renew_hold(hold["hold"])
            renewed = time.monotonic()

    try:
        _require_visible(hold["data_dir"], [hold["data_dir"], *(piece["path"] for piece in hold["journal"])])
        yield Source(
            hold["data_dir"],
            hold["now"],
            hold["topics"],
            hold["position"],
            {entry["number"]: entry["path"] for entry in hold["snapshots"]},
            {entry["number"]: entry["path"] for entry in hold["segments"]},
            [(piece["path"], piece["base"]) for piece in hold["journal"]],
            keep,
        )
    finally:
        with suppress(TopicsError):
            client.release_hold(hold["hold"])


def _require_visible(data_dir: str, paths: list[str]) -> None:
    for path in paths:
        if not os.access(path, os.R_OK):
            raise UserMistake(
                f"cannot read {path}: a backup runs on the machine of the server, as somebody who may read "
                f"its directory {data_dir}"
            )


@contextmanager
def stopped_server(settings: Settings) -> Iterator[Source]:
    """A directory that nobody uses: it is locked meanwhile, and nothing in it changes."""
    require_data_dir(settings.data_dir)
    require_all_segments(settings)
    fs = UntouchedDisk()
    lock = fs.lock(Directories(settings.data_dir).lock)
    try:
        yield _describe(fs, settings)
    finally:
        fs.unlock(lock)


def _describe(fs: UntouchedDisk, settings: Settings) -> Source:
    dirs = Directories(settings.data_dir)
    numbers = SnapshotStore(fs, dirs.snapshots).newest()
    decoded = {number: decode(body) for number, body in numbers.items()}
    states = {number: state for number, state in decoded.items() if state is not None}
    start = min((state.replay_from for state in states.values()), default=0)
    witness = Witness(fs, settings.data_dir).previous
    proven = witness.acked if witness.same_boot else witness.synced
    reader = JournalReader(fs, dirs.journal, start=start, proven=proven)
    now = max((witness.clock_ms, *(state.clock_ms for state in states.values())))
    newest = max(states.values(), key=lambda state: state.position, default=None)
    topics = set() if newest is None else {topic.id for topic in newest.topics}
    for item in reader.frames():
        if not isinstance(item, Damage) and item.kind != Kind.CLOCK:
            now = max(now, item.ts)
            if newest is None or item.position >= newest.position:
                _follow(item, topics)
    segments = {
        run.segment: _segment_path(fs, settings, run.segment)
        for state in states.values()
        for topic in state.topics
        for run in topic.runs
        if run.segment
    }
    return Source(
        os.path.abspath(settings.data_dir),
        now,
        len(topics),
        reader.end,
        {number: os.path.join(dirs.snapshots, snapshot_files.file_name(number)) for number in states},
        dict(sorted(segments.items())),
        [
            (os.path.join(dirs.journal, journal_file_name(file.base)), file.base)
            for file in reader.files()
            if file.end > start
        ],
        lambda: None,
    )


def _follow(frame: Frame, topics: set[int]) -> None:
    """Which topics there are after this frame."""
    if frame.kind == Kind.CREATE:
        topics.add(frame.topic_id)
    elif frame.kind == Kind.DROP:
        topics.discard(frame.topic_id)


def _segment_path(fs: UntouchedDisk, settings: Settings, number: int) -> str:
    """The first tier counts where both have it."""
    name = segment_files.file_name(number)
    hot = os.path.join(Directories(settings.data_dir).segments, name)
    if settings.cold_dir is None or fs.exists(hot):
        return hot
    return os.path.join(settings.cold_dir, name)

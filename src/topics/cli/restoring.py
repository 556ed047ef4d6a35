"""Restoring one backup: verify, copy, recover, take back, and only then let it be seen.

backup ─▶ DATA_DIR/.restoring ─▶ recovery as after a crash ─▶ cut, new epochs ─▶ two checkpoints ─▶ DATA_DIR
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace

import numpy as np

from topics.cli.offline import offline_settings
from topics.cli.work import Steps, UserMistake
from topics.keep.backup_directory import BackupStore, Manifest
from topics.keep.rewind import head_at
from topics.keep.rewind_flow import begin_new_epochs, truncate
from topics.log.engine import Engine
from topics.log.seal.snapshot_state import SnapshotState, decode
from topics.log.topic import Topic
from topics.node.node import Node
from topics.storage import fileheader
from topics.storage import journal as journal_files
from topics.storage import segment as segment_files
from topics.storage import snapshot as snapshot_files
from topics.storage.directories import Directories
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Filesystem, write_file_atomically
from topics.storage.frame import Kind
from topics.storage.journal_reader import PROOF, PROOF_MAGIC, PROOF_VERSION, Damage, JournalReader
from topics.storage.segment import Segment
from topics.storage.snapshot import SnapshotStore

STAGING = ".restoring"
# Topics of a server have consecutive ids, from 1 on. A restore begins far above, so much for each second
# since 1970, lest its ids be those of topics that the old server, or an earlier restore, has made meanwhile.
IDS_PER_SECOND = 1 << 20


@dataclass(slots=True)
class Wanted:
    at_ms: int | None
    heads: dict[str, int]
    same_history: bool


@dataclass(slots=True)
class Restored:
    as_of_ms: int
    topics: int
    records: int
    is_exact: bool
    new_epochs: bool


class Restoring:
    def __init__(self, store: BackupStore, manifest: Manifest, data_dir: str, steps: Steps) -> None:
        self._store = store
        self._manifest = manifest
        self._data_dir = os.path.abspath(data_dir)
        self._steps = steps
        self._fs = Filesystem()
        self._staging = os.path.join(self._data_dir, STAGING)
        self._dirs = Directories(self._staging)

    def run(self, wanted: Wanted, *, is_exact: bool) -> Restored:
        self._require_empty()
        self._verify()
        try:
            self._copy()
            if is_exact and wanted.at_ms is not None:
                self._cut(wanted.at_ms)
            restored = self._rebuild(wanted, is_exact=is_exact)
        except BaseException:
            shutil.rmtree(self._staging, ignore_errors=True)
            raise
        self._publish()
        return restored

    def _require_empty(self) -> None:
        if os.path.exists(self._data_dir):
            if not os.path.isdir(self._data_dir):
                raise UserMistake(f"{self._data_dir} is not a directory")
            if set(os.listdir(self._data_dir)) - {STAGING}:
                raise UserMistake(f"{self._data_dir} is not empty: a restore never writes over anything")

    def _verify(self) -> None:
        self._steps.begin("verifying", self._manifest.size)
        findings = self._store.verify(self._manifest, self._steps.advance)
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise UserMistake(f"backup {self._manifest.name} cannot be restored: {findings[0]}{more}")

    # --- copying ----------------------------------------------------------------------------------------

    def _copy(self) -> None:
        """Left over from an attempt that was interrupted, the staging directory is begun anew."""
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in (self._dirs.journal, self._dirs.segments, self._dirs.snapshots):
            self._fs.make_dirs(path)
        manifest, store = self._manifest, self._store
        self._steps.begin("copying", manifest.size)
        for file in manifest.files:
            if "/" in file.name:
                self._copy_file(store.path(manifest, file), os.path.join(self._staging, file.name))
        flags = store.flags(manifest)
        for number, file in manifest.segments.items():
            path = os.path.join(self._dirs.segments, segment_files.file_name(number))
            self._copy_file(store.segment_path(file), path)
            if number in flags:
                self._mark(path, flags[number])
        # Whatever does not verify below this position was damaged before, and is no torn tail.
        proof = fileheader.encode(PROOF_MAGIC, PROOF_VERSION, manifest.position)
        write_file_atomically(self._fs, self._dirs.journal, PROOF, [proof])

    def _copy_file(self, source: str, target: str) -> None:
        shutil.copyfile(source, target)
        file = self._fs.open(target)
        try:
            file.sync()
            self._steps.advance(file.size())
        finally:
            file.close()

    def _mark(self, path: str, flags: list[tuple[int, int, bytes]]) -> None:
        segment = Segment(self._fs, path)
        try:
            for topic_id, base, indexes in flags:
                segment.flip(segment.entry(topic_id, base), np.frombuffer(indexes, np.uint32))
            segment.sync()
        finally:
            segment.close()

    # --- cutting ----------------------------------------------------------------------------------------

    def _cut(self, at_ms: int) -> None:
        """Let the journal end where the moment was over, and start from a snapshot that is older."""
        usable: SnapshotState | None = None
        for number, body in SnapshotStore(self._fs, self._dirs.snapshots).newest().items():
            state = decode(body)
            if state is None or state.clock_ms > at_ms:
                os.unlink(os.path.join(self._dirs.snapshots, snapshot_files.file_name(number)))
            elif usable is None or state.position > usable.position:
                usable = state
        start = 0 if usable is None else usable.position
        reader = JournalReader(self._fs, self._dirs.journal, start=start, proven=self._manifest.position)
        for item in reader.frames():
            if isinstance(item, Damage) or item.kind == Kind.CLOCK or item.ts <= at_ms:
                continue
            for file in reader.files():
                path = os.path.join(self._dirs.journal, journal_files.file_name(file.base))
                if file.base >= item.position:
                    os.unlink(path)
                elif file.end > item.position:
                    os.truncate(path, FILE_HEADER_BYTES + item.position - file.base)
            return

    # --- rebuilding -------------------------------------------------------------------------------------

    def _rebuild(self, wanted: Wanted, *, is_exact: bool) -> Restored:
        self._steps.begin("recovering", 1.0)
        node = Node(replace(offline_settings(self._staging), cold_dir=None))
        engine = node.engine
        node.recover(self._steps.reach)
        self._steps.begin("finishing")
        heads = dict(wanted.heads)
        if wanted.at_ms is not None and not is_exact:
            heads = {name: head_at(topic, wanted.at_ms) for name, topic in engine.by_name.items()} | heads
        for name, head in heads.items():
            truncate(engine, node.routers, _topic(engine, name, head), head)
        if not wanted.same_history:
            begin_new_epochs(engine, node.routers, node.cursors, _id_offset(engine))
        # Two, so that nothing refers to the copied journal any more.
        node.checkpointer.run_now(everything=True)
        node.checkpointer.run_now(everything=True)
        if engine.queue.failure is not None:
            raise UserMistake(str(engine.queue.failure))
        records = sum(topic.live_count for topic in engine.by_id.values())
        node.leave(clean=True)
        as_of = self._manifest.to_ms if wanted.at_ms is None else wanted.at_ms
        return Restored(as_of, len(engine.by_id), records, is_exact, not wanted.same_history)

    def _publish(self) -> None:
        """Journal first, snapshots last: in between, a server refuses to start instead of starting empty."""
        staged, final = self._dirs, Directories(self._data_dir)
        for source, target in (
            (staged.journal, final.journal),
            (staged.segments, final.segments),
            (staged.witness, final.witness),
            (staged.snapshots, final.snapshots),
        ):
            self._fs.rename(source, target)
            self._fs.sync_dir(self._data_dir)
        os.unlink(staged.lock)
        os.rmdir(self._staging)
        self._fs.sync_dir(self._data_dir)


def _topic(engine: Engine, name: str, head: int) -> Topic:
    topic = engine.find(name)
    if topic is None:
        raise UserMistake(f"there is no topic {name} in this backup")
    if head > topic.head:
        raise UserMistake(f"topic {name} ends at {topic.head} in this backup, before {head}")
    return topic


def _id_offset(engine: Engine) -> int:
    first = max(int(time.time()) * IDS_PER_SECOND, engine.next_topic_id)
    return first - min(engine.by_id, default=1) + 1

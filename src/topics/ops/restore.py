"""Restoring one backup: verify, copy, recover, take back, and only then let it be seen.

backup ─▶ DATA_DIR/.restoring ─▶ recovery as after a crash ─▶ cut, new epochs ─▶ two checkpoints ─▶ DATA_DIR
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from topics.core import Settings, UserMistake, moment
from topics.flow.routers.registry import Routers
from topics.log import Engine, Run, Topic, settle_floor, surviving_damage
from topics.ops.backup_directory import MANIFEST, BackupDamaged, BackupStore, Manifest
from topics.ops.directory import OpenNode, Steps, snapshot_states
from topics.storage import (
    FILE_HEADER_BYTES,
    PROOF,
    PROOF_MAGIC,
    Damage,
    Directories,
    Filesystem,
    ForeignDirectory,
    Identity,
    JournalReader,
    Kind,
    LockHeld,
    Segment,
    SegmentDamaged,
    choose_cold_dir,
    fileheader,
    renumber,
    segment,
    write_file_atomically,
    write_identity,
)


def _last_time(reader: JournalReader, at_ms: int) -> tuple[int, int | None]:
    """Where the clock was last set back to this moment or before it, and where the moment was over then.

    -1: never. None: it has not passed since.
    """
    set_back, over = -1, None
    for item in reader.frames():
        if isinstance(item, Damage) or item.kind == Kind.CLOCK:
            continue
        if item.kind == Kind.CLOCK_SET_BACK and item.ts <= at_ms:
            set_back, over = item.position, None
        elif over is None and item.clock_ms > at_ms:
            over = item.position
    return set_back, over


@surviving_damage
def head_at(topic: Topic, at_ms: int) -> int:
    """The last seq that had been given out by then, as far as the records that are left can tell."""
    if not topic.runs or topic.runs[-1].last_ts <= at_ms:
        return topic.head
    for run in reversed(topic.runs):
        if run.last_ts <= at_ms:
            return run.last
        if run.first_ts <= at_ms and run.live_count:
            return run.base + int(np.searchsorted(topic.store.columns(run).ts, at_ms, side="right")) - 1
    return topic.runs[0].base - 1


def truncate(engine: Engine, routers: Routers, topic: Topic, head: int) -> None:
    """Forget everything above `head`: a lease or a router must not refer to what is written there next."""
    if head < topic.head:
        _take_back(engine, topic, head)
    if topic.config.is_queue:
        table = topic.extension.table
        table.forget({seq for seq in table.known() if seq > head})
    for router in routers.table.from_source(topic):
        router.cursor = router.sent = min(router.cursor, head)
    for router in routers.table.into(topic):
        router.keys_scanned = min(router.keys_scanned, head)


def _take_back(engine: Engine, topic: Topic, head: int) -> None:
    _cut_runs(topic, engine, head)
    topic.rewind(head)
    if topic.keys is not None:
        topic.keys.take_back(head)
    topic.settle_totals()
    settle_floor(topic)


@surviving_damage
def _cut_runs(topic: Topic, engine: Engine, head: int) -> None:
    for run in [run for run in topic.runs if run.last > head]:
        beginning = None
        if run.base <= head and run.live_count:
            beginning = _beginning(engine, topic, run, head - run.base + 1)
        topic.remove_run(run)
        if beginning is not None and beginning.live_count:
            topic.insert_run(beginning)
            topic.store.unsealed.grew(beginning, beginning.hot.size if beginning.hot else 0)


def _beginning(engine: Engine, topic: Topic, run: Run, count: int) -> Run:
    """The first records of a run as one of their own, in memory until it is sealed."""
    columns = topic.store.columns(run)
    short = Run(topic.id, run.base, None, start_position=engine.journal.position, framed=False)
    short.fill(columns, count, run.dead, topic.floor)
    return short


def begin_new_epochs(engine: Engine, routers: Routers, offset: int) -> None:
    """Give every topic another id, in memory and in its segments. Not safe in a crash, nor meant to be.

    Named cursors stay, and still say for which epoch they were set.
    """
    store = engine.store
    store.close()
    for number in store.users:
        with suppress(SegmentDamaged, FileNotFoundError):  # its records are lost under any id
            renumber(store.fs, os.path.dirname(store.path(number)), number, offset)
    store.changed.clear()
    for topic in engine.by_id.values():
        topic.renumber(topic.id + offset)
    renumbered = {topic.id: topic for topic in engine.by_id.values()}
    # In place: other parts of the log hold the same dict.
    engine.by_id.clear()
    engine.by_id.update(renumbered)
    engine.next_topic_id += offset
    engine.lives.begin_anew()
    # Steps in the journal refer to the old ids, and the journal ends here.
    routers.referred = {}


STAGING = ".restoring"
# Topics of a server have consecutive ids, from 1 on. A restore begins far above, so much for each second
# since 1970, lest its ids be those of topics that the old server, or an earlier restore, has made meanwhile;
# fractions of a second count, because two restores may follow each other at once.
IDS_PER_SECOND = 1 << 20


@dataclass(slots=True)
class RestoreRequest:
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
    # Which log this is from now on, and which one it comes from.
    identity: Identity


def located(source: str, name: str | None) -> tuple[BackupStore, str | None]:
    """The directory of backups, and which one of them was meant."""
    path = os.path.abspath(source)
    if os.path.exists(os.path.join(path, MANIFEST)):
        path, inner = os.path.split(path)
        if name not in (None, inner):
            raise UserMistake(f"{source} is itself a backup; leave --backup away")
        name = inner
    store = BackupStore(Filesystem(), path)
    if not store.names():
        raise UserMistake(f"there are no backups in {source}")
    if name is not None and name not in store.names():
        raise UserMistake(f"there is no backup {name} in {path}")
    return store, name


def chosen(store: BackupStore, name: str | None, at_ms: int | None) -> tuple[Manifest, bool]:
    """The backup to start from, and whether it knows the wanted moment exactly."""
    if name is None:
        try:
            candidates = store.manifests()
        except BackupDamaged as error:
            # It may be the newest: an older one is only restored to those who name it.
            raise UserMistake(f"{error}; to restore another backup, name it with --backup") from None
        if not candidates:
            raise UserMistake(f"no backup in {store.directory} is complete")
    else:
        manifest = store.manifest(name)
        if manifest is None:
            raise UserMistake(f"backup {name} is incomplete: it was interrupted")
        candidates = [manifest]
    if at_ms is None:
        return candidates[-1], True
    exact = [m for m in candidates if m.from_ms <= at_ms <= m.to_ms]
    if exact:
        return exact[-1], True
    later = [m for m in candidates if m.from_ms > at_ms]
    if later:
        return later[0], False
    raise UserMistake(
        f"the newest backup ends at {moment(candidates[-1].to_ms)}: leave --at away to restore that"
    )


class Restore:
    """One backup on its way into a directory. `settings`: sizes as the server will have them."""

    def __init__(
        self,
        store: BackupStore,
        manifest: Manifest,
        settings: Settings,
        open_node: OpenNode,
        steps: Steps,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._data_dir = os.path.abspath(settings.data_dir)
        self._settings = settings
        self._open_node = open_node
        self._steps = steps
        self._fs = Filesystem()
        self._staging = os.path.join(self._data_dir, STAGING)
        self._dirs = Directories(self._staging)

    def run(self, wanted: RestoreRequest, *, is_exact: bool) -> Restored:
        self._require_empty()
        self._require_own_cold_dir()
        self._verify()
        with self._alone():
            self._require_empty()
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

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Neither a server nor another restore uses the directory meanwhile."""
        self._fs.make_dirs(self._data_dir)
        try:
            lock = self._fs.lock_dir(self._data_dir)
        except LockHeld:
            raise UserMistake(f"{self._data_dir} is in use by another process") from None
        try:
            yield
        finally:
            self._fs.unlock(lock)

    def _require_own_cold_dir(self) -> None:
        """The one of the log that was backed up stays with that log: it may still run."""
        try:
            choose_cold_dir(self._fs, Directories(self._data_dir, self._settings.cold_dir), dict)
        except ForeignDirectory as error:
            raise UserMistake(f"{error}; name it with --cold-dir") from None

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
            path = os.path.join(self._dirs.segments, segment.file_name(number))
            self._copy_file(store.segment_path(file), path)
            if number in flags:
                self._mark(path, flags[number])
        # Whatever does not verify below this position was damaged before, and is no torn tail.
        proof = fileheader.encode(PROOF_MAGIC, manifest.position)
        write_file_atomically(self._fs, self._dirs.journal, PROOF, [proof])
        origin = store.identity(manifest)
        new = Identity(self._fs.new_identity(), "" if origin is None else origin.identity)
        self._identity = write_identity(self._fs, self._staging, new)

    def _copy_file(self, source: str, target: str) -> None:
        shutil.copyfile(source, target)
        with self._fs.open(target) as file:
            file.sync()
            self._steps.advance(file.size())

    def _mark(self, path: str, flags: list[tuple[int, int, bytes]]) -> None:
        with Segment(self._fs, path) as marked:
            for topic_id, base, indexes in flags:
                marked.flip(marked.entry(topic_id, base), np.frombuffer(indexes, np.uint32))
            marked.sync()

    # --- cutting ----------------------------------------------------------------------------------------

    def _cut(self, at_ms: int) -> None:
        """Let the journal end where the moment was over, and start from a snapshot that is older."""
        states = snapshot_states(self._fs, self._dirs)
        start = min((state.position for state in states.values()), default=0)
        reader = JournalReader(self._fs, self._dirs.journal, start=start, proven=self._manifest.position)
        set_back, over = _last_time(reader, at_ms)
        for number, state in states.items():
            if state.clock_ms > at_ms and state.position > set_back:
                os.unlink(self._dirs.snapshot_path(number))
        if over is None:
            return
        for file in reader.files():
            path = self._dirs.journal_path(file.base)
            if file.base >= over:
                os.unlink(path)
            elif file.end > over:
                os.truncate(path, FILE_HEADER_BYTES + over - file.base)

    # --- rebuilding -------------------------------------------------------------------------------------

    def _rebuild(self, wanted: RestoreRequest, *, is_exact: bool) -> Restored:
        self._steps.begin("recovering", 1.0)
        node = self._open_node(replace(self._settings, data_dir=self._staging, cold_dir=None), None, None)
        engine = node.engine
        node.recover(self._steps.reach)
        self._steps.begin("finishing")
        heads = dict(wanted.heads)
        if wanted.at_ms is not None and not is_exact:
            heads = {name: head_at(topic, wanted.at_ms) for name, topic in engine.by_name.items()} | heads
        for name, head in heads.items():
            truncate(engine, node.routers, _topic(engine, name, head), head)
        if not wanted.same_history:
            begin_new_epochs(engine, node.routers, _id_offset(engine))
        # Two, so that nothing refers to the copied journal any more.
        node.checkpointer.run_now(everything=True)
        node.checkpointer.run_now(everything=True)
        if engine.queue.refusals.refusal is not None:
            raise UserMistake(str(engine.queue.refusals.refusal))
        records = sum(topic.live_count for topic in engine.by_id.values())
        node.leave(clean=True)
        as_of = self._manifest.to_ms if wanted.at_ms is None else wanted.at_ms
        return Restored(as_of, len(engine.by_id), records, is_exact, not wanted.same_history, self._identity)

    def _publish(self) -> None:
        """Journal first, snapshots last: in between, a server refuses to start instead of starting empty."""
        staged, final = self._dirs, Directories(self._data_dir)
        for source, target in (
            (staged.journal, final.journal),
            (staged.segments, final.segments),
            (staged.witness, final.witness),
            (staged.identity, final.identity),
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
    first = max(int(time.time() * IDS_PER_SECOND), engine.next_topic_id)
    return first - min(engine.by_id, default=1) + 1

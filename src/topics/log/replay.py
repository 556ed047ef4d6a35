"""Recovery: the newest usable snapshot, then the journal on top of it, then an account of what is missing.

Frames below the snapshot's position only bring back record data; frames above it are applied again exactly as
they were the first time. What was promised and cannot be found becomes a hole, never a silent end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from topics.log import ledger
from topics.log.checkpoint import Checkpointer, Predecessor
from topics.log.deletion import Selector
from topics.log.engine import CreatePayload, Engine
from topics.log.joining import Joined, join_small
from topics.log.loading import is_any_loaded, is_loaded, load_rows
from topics.log.payload import decode_append
from topics.log.retention import enforce_caps, expire, keep_lines
from topics.log.state import SnapshotState, decode, restore_topic
from topics.log.topic import Topic
from topics.storage import segment as segment_files
from topics.storage.frame import HEADER_BYTES, Frame, Kind
from topics.storage.journal import Journal
from topics.storage.journal_reader import Damage, JournalReader
from topics.values.config import DEFAULT_CONFIG, TopicConfig
from topics.values.settings import MAX_BULK_RECORDS, MAX_SEQ

if TYPE_CHECKING:
    from topics.log.engine import Extension

log = logging.getLogger("topics.recovery")
_create = msgspec.msgpack.Decoder(CreatePayload)
_config = msgspec.msgpack.Decoder(TopicConfig)
_selector = msgspec.msgpack.Decoder(Selector)
_number = msgspec.msgpack.Decoder(int)
_lines = msgspec.msgpack.Decoder(tuple[int, int])
_heads = msgspec.msgpack.Decoder(list[tuple[int, int]])
# No record takes less journal than this: `{"$seq":1,"$ts":0,"data":0}`, a newline, its length.
_SMALLEST_RECORD_BYTES = 32
_EMPTY = SnapshotState(0, 0, 1, 1, 0, [], {})


class RecoveryFailed(Exception):
    """The data directory cannot be opened without losing something silently."""


class Recovery:
    """Rebuilds an engine from its data directory. Running it twice gives the same state."""

    def __init__(self, engine: Engine, progress: Callable[[float], None] = lambda _: None) -> None:
        self._engine = engine
        self._progress = progress
        self._by_kind: dict[int, Extension] = {}
        self._snapshot = _EMPTY
        self._unsealed_dead: dict[int, bytes] = {}
        # Topics of which an unreadable frame may have held the last records.
        self._uncertain: set[int] = set()
        self._unreadable_bytes = 0
        self._dropped: set[int] = set()
        self._settled = False

    def run(self) -> Checkpointer:
        engine = self._engine
        testimony = engine.witness.previous
        self._by_kind = {kind: ext for ext in engine.extensions for kind in ext.kinds}
        self._snapshot = self._choose_snapshot()
        self._restore_snapshot()
        predecessor = Predecessor(engine, self._snapshot.replay_from)
        proven = testimony.acked if testimony.same_boot else testimony.synced
        reader = JournalReader(
            engine.fs, engine.dirs.journal, start=self._snapshot.replay_from, proven=proven
        )
        if reader.files() and reader.files()[0].base > self._snapshot.replay_from:
            raise RecoveryFailed("no intact snapshot reaches back to the journal that is left")
        self._remove_orphan_segments()
        self._replay(reader)
        position = max(reader.end, self._snapshot.position)
        holes = self._close_reservations(testimony.synced, position, reader)
        engine.clock_floor_ms = max(engine.clock_floor_ms, self._clock_floor())
        # After a restart of the machine, everything that was read came from the disk.
        doubtful_from = testimony.synced if testimony.same_boot else position
        journal = Journal(
            engine.fs, engine.dirs.journal, reader.files(), position, doubtful_from=doubtful_from
        )
        engine.start(journal)
        self._journal_holes(holes)
        if engine.queue.failure is None:
            # Only now, with the holes on disk, may the page forget what the previous process had promised.
            engine.witness.begin(engine.journal.position, engine.now())
        now = engine.now()
        for topic in engine.by_id.values():
            expire(topic, now)
        self._progress(1.0)
        return Checkpointer(engine, predecessor)

    # --- snapshot ---------------------------------------------------------------------------------------

    def _choose_snapshot(self) -> SnapshotState:
        for body in self._engine.snapshots.newest_first():
            state = decode(body)
            if state is not None:
                return state
            log.warning("a damaged snapshot is passed over")
        return _EMPTY

    def _restore_snapshot(self) -> None:
        engine, snapshot = self._engine, self._snapshot
        engine.next_topic_id = snapshot.next_topic_id
        engine.next_segment = snapshot.next_segment
        engine.clock_floor_ms = engine.clock_mark.reached_ms = snapshot.clock_ms
        engine.store.find_cold()
        for state in snapshot.topics:
            topic = engine.add_recovered(state.id, state.name, state.config, state.seq_base)
            restore_topic(topic, state)
            self._unsealed_dead[topic.id] = state.unsealed_dead
        for extension in engine.extensions:
            if extension.name in snapshot.extensions:
                extension.load(snapshot.extensions[extension.name])

    def _remove_orphan_segments(self) -> None:
        """Segments written after the snapshot was taken: their records are still in the journal.

        Older ones to which the snapshot does not refer may still be needed by the one before it. They are
        left to the next checkpoints, like every file whose last record has gone.
        """
        engine = self._engine
        for directory in filter(None, (engine.dirs.segments, engine.settings.cold_dir)):
            for name in engine.fs.list(directory):
                number = name.removesuffix(segment_files.SUFFIX)
                if name.endswith(".tmp"):
                    engine.fs.remove(os.path.join(directory, name))
                elif number.isdigit() and int(number) >= self._snapshot.next_segment:
                    engine.fs.remove(os.path.join(directory, name))
                    # Its number is given out again, to a file in the first tier.
                    engine.store.cold.discard(int(number))
                elif number.isdigit():
                    engine.store.note_file(int(number))

    # --- journal ----------------------------------------------------------------------------------------

    def _replay(self, reader: JournalReader) -> None:
        start, position = self._snapshot.replay_from, self._snapshot.position
        for count, item in enumerate(join_small(reader.frames(), position)):
            if not self._settled and item.position >= position:
                self._settle()
            if isinstance(item, Damage):
                self._note_damage(item)
            elif isinstance(item, Joined):
                self._take_joined(item)
            else:
                if item.kind == Kind.APPEND:
                    for witness in self._engine.append_witnesses:
                        witness(item)
                if item.position < position:
                    self._reload(item)
                else:
                    self._apply(item)
            if not count % 1024:
                self._progress(min((item.position - start) / reader.size, 0.999))
        if not self._settled:
            self._settle()

    def _take_joined(self, joined: Joined) -> None:
        """Small frames as if they were one; frame by frame where that would make a difference."""
        for witness in self._engine.append_witnesses:
            for frame in joined.frames:
                witness(frame)
        is_known = joined.position < self._snapshot.position
        topic = self._engine.by_id.get(joined.topic_id)
        if is_known and topic is not None and self._reload_joined(topic, joined):
            return
        if not is_known and topic is not None and self._append_joined(topic, joined):
            return
        for frame in joined.frames:
            self._reload(frame) if is_known else self._apply(frame)

    def _reload_joined(self, topic: Topic, joined: Joined) -> bool:
        first, last = joined.first_seq, joined.last_seq
        if first < topic.floor or last > topic.head or is_any_loaded(topic, first, last):
            return False
        batch, rows = joined.decode()
        times = joined.times()
        run = load_rows(self._engine, topic, first, batch, rows, times[0][1], None, joined.position)
        run.restamp(first - run.base, times)
        return True

    def _append_joined(self, topic: Topic, joined: Joined) -> bool:
        engine, config = self._engine, topic.config
        if config.ttl_ms or config.cap_records or config.cap_bytes or joined.first_seq != topic.head + 1:
            return False  # retention has to be asked in between, or something is missing or known already
        self._uncertain.discard(topic.id)
        batch, rows = joined.decode()
        times = joined.times()
        run = topic.open_run(engine.run_max_events, engine.run_max_bytes, joined.position, ephemeral=False)
        topic.stage(run, batch, rows, times[0][1])
        run.restamp(joined.first_seq - run.base, times)
        run.framed += batch.count
        topic.last_ts = times[-1][1]
        was_empty = not topic.live_count
        topic.publish(batch.count, batch.size, times[-1][1])
        if was_empty:
            topic.floor_ts = times[0][1]
        engine.touched.add(topic)
        return True

    def _reload(self, frame: Frame) -> None:
        """Record data of a frame whose effects are in the snapshot."""
        if frame.kind == Kind.APPEND:
            topic = self._engine.by_id.get(frame.topic_id)
            if topic is not None and frame.last_seq >= topic.floor and frame.first_seq <= topic.head:
                self._load_rows(topic, frame)
        elif frame.kind in self._by_kind:
            self._by_kind[frame.kind].reload(frame)

    def _load_rows(self, topic: Topic, frame: Frame) -> None:
        if not is_loaded(topic, frame.first_seq):
            batch, rows, hops = decode_append(frame.payload, frame.count, frame.flags)
            load_rows(self._engine, topic, frame.first_seq, batch, rows, frame.ts, hops, frame.position)

    def _settle(self) -> None:
        """All data the snapshot speaks of has been read: mark deletions, count, find what is missing."""
        self._settled = True
        for topic in self._engine.by_id.values():
            self._mark_unsealed(topic)
            self._find_missing(topic)
            count = sum(run.live_count for run in topic.runs)
            size = sum(run.live_bytes for run in topic.runs)
            topic.add_live(count, size)
            topic.settle_floor(topic.floor)

    def _mark_unsealed(self, topic: Topic) -> None:
        dead = np.frombuffer(self._unsealed_dead.get(topic.id, b""), np.int64)
        for run in topic.runs:
            if run.hot is None:
                continue
            inside = dead[(dead >= run.base) & (dead <= run.last)] - run.base
            if len(inside):
                marks = np.zeros(run.count, np.uint8)
                marks[inside] = 1
                run.dead = bytearray(marks.tobytes())
                run.dead_count = len(inside)
            start = min(max(topic.floor - run.base, 0), run.count)
            columns = run.hot.view(run.base)
            run.live_count = run.live_between(start, run.count)
            run.live_bytes = int(run.live_sizes(columns, start, run.count).sum())
            del columns

    def _find_missing(self, topic: Topic) -> None:
        """Every seq from floor to head is in a run or in a known hole; the rest was lost."""
        expected = topic.floor
        anything_below = False
        known = [(hole.first, hole.last) for hole in topic.holes]
        spans = sorted([(run.base, run.last) for run in topic.runs] + known)
        live_runs = {run.base: run.live_count for run in topic.runs}
        for first, last in [*spans, (topic.head + 1, topic.head)]:
            if first > expected:
                topic.note_hole(expected, first - 1, ledger.LOST, interior=anything_below)
                self._engine.totals.damage += 1
            if live_runs.get(first):
                anything_below = True
            expected = max(expected, last + 1)

    # --- applying ---------------------------------------------------------------------------------------

    def _apply(self, frame: Frame) -> None:
        engine = self._engine
        kind = frame.kind
        # Of every frame, not only of creations: one that is damaged must not free its number, the epoch.
        engine.next_topic_id = max(engine.next_topic_id, frame.topic_id + 1)
        if kind == Kind.CREATE:
            payload = _create.decode(frame.payload)
            if payload.name in engine.by_name:
                # The frame that dropped the instance before this one is damaged.
                engine.apply_drop(engine.by_name[payload.name])
            topic = engine.add_recovered(frame.topic_id, payload.name, payload.config, payload.seq_base)
            topic.reserved = topic.reserve_asked = payload.reserved
        elif kind == Kind.HEADS:
            for topic_id, head in _heads.decode(frame.payload):
                self._prove_head(topic_id, head)
        elif kind == Kind.CLOCK:
            engine.clock_mark.reached_ms = max(engine.clock_mark.reached_ms, frame.ts)
            if not engine.witness.previous.same_boot:
                engine.clock_floor_ms = max(engine.clock_floor_ms, frame.ts)
        elif kind in self._by_kind:
            self._by_kind[kind].replay(frame)
        else:
            known = engine.by_id.get(frame.topic_id) or self._nameless(frame)
            if known is not None:
                self._apply_to(known, frame)

    def _nameless(self, frame: Frame) -> Topic | None:
        """The topic of a frame whose creation cannot be found."""
        topic_id = frame.topic_id
        was_dropped = topic_id < self._snapshot.next_topic_id or topic_id in self._dropped
        if was_dropped or frame.kind not in (Kind.APPEND, Kind.ADVANCE):
            return None
        return self._keep_nameless(topic_id)

    def _keep_nameless(self, topic_id: int) -> Topic:
        """A topic whose creation is damaged: what was written to it is kept, under a name that says so."""
        engine = self._engine
        log.error("the name of topic %d is lost; its records are in recovered-%d", topic_id, topic_id)
        return engine.add_recovered(
            topic_id, f"recovered-{topic_id}", DEFAULT_CONFIG, engine.settings.seq_base
        )

    def _apply_to(self, topic: Topic, frame: Frame) -> None:
        engine = self._engine
        kind = frame.kind
        if kind == Kind.APPEND:
            self._append_rows(topic, frame)
        elif kind == Kind.ADVANCE:
            expire(topic, frame.ts)
            self._prove_head(topic.id, frame.last_seq)
            topic.last_ts = max(topic.last_ts, frame.ts)
        elif kind == Kind.DELETE:
            engine.apply_delete(topic, _selector.decode(frame.payload), frame.ts)
        elif kind == Kind.CONFIG:
            engine.apply_config(topic, _config.decode(frame.payload), frame.ts)
        elif kind == Kind.RESERVE:
            topic.reserved = topic.reserve_asked = max(topic.reserved, _number.decode(frame.payload))
        elif kind == Kind.HOLE:
            self._prove_head(topic.id, frame.last_seq)
        elif kind == Kind.LINES:
            keep_lines(topic, *_lines.decode(frame.payload))
        elif kind == Kind.DROP:
            self._dropped.add(topic.id)
            engine.apply_drop(topic)

    def _append_rows(self, topic: Topic, frame: Frame) -> None:
        self._uncertain.discard(topic.id)
        if frame.last_seq <= topic.head:
            return
        if frame.first_seq > topic.head + 1:
            topic.add_hole(topic.head + 1, frame.first_seq - 1, ledger.LOST)
            self._engine.totals.damage += 1
        batch, rows, hops = decode_append(frame.payload, frame.count, frame.flags)
        expire(topic, frame.ts)
        engine = self._engine
        run = topic.open_run(engine.run_max_events, engine.run_max_bytes, frame.position, ephemeral=False)
        topic.stage(run, batch, rows, frame.ts, hops)
        run.framed += batch.count
        topic.publish(batch.count, batch.size, frame.ts)
        enforce_caps(topic)
        engine.touched.add(topic)

    # --- loss -------------------------------------------------------------------------------------------

    def _note_damage(self, damage: Damage) -> None:
        engine = self._engine
        engine.totals.damage += 1
        header = damage.header
        log.error(
            "journal is damaged from %d to %d; its records are announced as lost", damage.position, damage.end
        )
        if damage.end <= self._snapshot.position:
            return  # found again as missing data
        if header is None or header.kind == Kind.GROUP:
            # Whose records it held, nobody can say.
            self._uncertain.update(engine.by_id)
            self._unreadable_bytes += damage.end - damage.position
            return
        engine.next_topic_id = max(engine.next_topic_id, header.topic_id + 1)
        if header.kind in (Kind.APPEND, Kind.ADVANCE):
            self._prove_head(header.topic_id, header.first_seq + header.count - 1)
        elif header.kind == Kind.CREATE and header.topic_id not in engine.by_id:
            # At once: copies are not appended, so no frame of theirs would bring it back.
            self._keep_nameless(header.topic_id)
        elif header.kind == Kind.ROUTE:
            if header.topic_id:
                self._prove_head(header.topic_id, header.first_seq + header.count - 1)
            else:
                self._uncertain.update(engine.by_id)  # it fed several topics; only the payload named them

    def _prove_head(self, topic_id: int, head: int) -> None:
        topic = self._engine.by_id.get(topic_id)
        self._uncertain.discard(topic_id)
        if topic is not None and head > topic.head:
            topic.add_hole(topic.head + 1, head, ledger.LOST)

    def _close_reservations(
        self, synced: int, position: int, reader: JournalReader
    ) -> list[tuple[Topic, int]]:
        """Seqs that may have been handed out by frames that are gone are never handed out again."""
        testimony = self._engine.witness.previous
        if testimony.same_boot:
            cut = testimony.acked > position
        else:
            # Whatever the page says was acknowledged: it may be as old as its process.
            cut = testimony.known and not testimony.clean
        # Synced journal that is gone may have held reservations: then only its size bounds what it gave out.
        destroyed = max(synced - position, 0) + self._unreadable_bytes
        holes: list[tuple[Topic, int]] = []
        for topic in self._engine.by_id.values():
            lost = topic.id in self._uncertain or (
                cut and (topic.config.durability != "fsync" or synced > position)
            )
            reserved = max(topic.reserved, topic.head + self._most_seqs(topic, destroyed))
            if lost and reserved > topic.head:
                holes.append((topic, topic.head + 1))
                topic.add_hole(topic.head + 1, min(reserved, MAX_SEQ), ledger.LOST)
        if reader.cut is not None:
            log.warning("journal was torn at %d; the tail was put aside", reader.cut)
        return holes

    def _most_seqs(self, topic: Topic, journal_bytes: int) -> int:
        """How many seqs of a topic so much journal can have handed out."""
        if topic.config.durability == "ephemeral" or topic.id in self._engine.derived:
            return -(-journal_bytes // HEADER_BYTES) * MAX_BULK_RECORDS
        return journal_bytes // _SMALLEST_RECORD_BYTES

    def _journal_holes(self, holes: list[tuple[Topic, int]]) -> None:
        engine = self._engine
        for topic, first in holes:
            engine.journal.write(
                engine.journal.frame(
                    Kind.HOLE,
                    b"",
                    topic_id=topic.id,
                    first_seq=first,
                    count=topic.head - first + 1,
                    ts=engine.now(),
                )
            )
        engine.queue.sync_journal()

    def _clock_floor(self) -> int:
        testimony = self._engine.witness.previous
        return testimony.clock_ms if testimony.same_boot else 0

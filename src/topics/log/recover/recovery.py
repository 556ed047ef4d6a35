"""Recovery: the newest usable snapshot, then the journal on top of it, then an account of what is missing.

    snapshot ─▶ reload (frames below its position: record data only)
             ─▶ replay (frames above it: again, just as the first time) ─▶ lost_frames (what may be missing)

What was promised and cannot be found becomes a hole, never a silent end.
"""

import logging
from collections.abc import Callable

from topics.core import Explained
from topics.log.engine import Engine
from topics.log.lifecycle import add_recovered
from topics.log.recover.lost_frames import LostFrames
from topics.log.recover.reload import Reload
from topics.log.recover.replay import JournalReplay
from topics.log.recover.small_frames import SmallFrames, join_small
from topics.log.seal.checkpoint import Checkpointer, Predecessor, restore_topic
from topics.log.seal.snapshot_state import SnapshotState, decode
from topics.log.write.append import assign
from topics.storage import Damage, Frame, Journal, JournalReader, Kind

log = logging.getLogger("topics.recovery")
# How often progress is told, at most, while the journal is read.
REPORTS = 500
_EMPTY = SnapshotState(0, 0, 1, 1, 0, [], {})
# Frames of the log itself; the others belong to extensions.
_OWN_KINDS = frozenset(
    (*range(Kind.CREATE, Kind.HEADS + 1), Kind.LINES, Kind.CREATE_AGAIN, Kind.CLOCK_SET_BACK, Kind.ADOPT)
)


class RecoveryFailed(Explained):
    """The data directory cannot be opened without losing something silently."""


class Recovery:
    """Rebuilds an engine from its data directory. Running it twice gives the same state."""

    def __init__(self, engine: Engine, progress: Callable[[float], None] = lambda _: None) -> None:
        self._engine = engine
        self._progress = progress
        self._snapshot = _EMPTY

    def run(self) -> Checkpointer:
        engine = self._engine
        testimony = engine.witness.previous
        self._snapshot = self._choose_snapshot()
        self._refuse_unclaimed_state()
        self._restore_snapshot()
        predecessor = Predecessor(engine, self._snapshot.replay_from)
        reader = JournalReader(
            engine.fs, engine.dirs.journal, start=self._snapshot.replay_from, proven=testimony.proven
        )
        # Below the snapshot the journal holds nothing but records: those that are missing are announced.
        if reader.files() and reader.files()[0].base > self._snapshot.position:
            raise RecoveryFailed("no intact snapshot reaches back to the journal that is left")
        lost_frames = LostFrames(engine, self._snapshot.position)
        self._replay(reader, lost_frames)
        # The journal still has the records of segments that are newer than the snapshot, unless it imported
        # them. Older ones to which the snapshot does not refer may be needed by the one before it: the next
        # checkpoints remove them, like every file whose last record has gone.
        engine.store.remove_orphans(self._snapshot.next_segment)
        if reader.cut is not None:
            log.warning("journal was torn at %d; the tail was put aside", reader.cut)
        position = max(reader.end, self._snapshot.position)
        # The journal hears before the page that the clock was set back.
        if testimony.same_boot and testimony.clock_ms != engine.shown_time.left_ms:
            engine.shown_time.raise_floor(testimony.clock_ms)
        # What had gone by age goes first: with nothing left below it, a hole belongs to the front.
        engine.expire_all(engine.shown_time.floor_ms)
        lost_frames.close_reservations(position)
        # After a restart of the machine, everything that was read came from the disk.
        doubtful_from = testimony.synced if testimony.same_boot else position
        journal = Journal(
            engine.fs,
            engine.dirs.journal,
            reader.files(),
            position,
            doubtful_from=doubtful_from,
            ahead=engine.ahead,
        )
        engine.start(journal, assign)
        if not self._sign(lost_frames) and engine.queue.refusals.failure is None:
            engine.hold_until(lambda: self._sign(lost_frames))
        # Age has taken records up to a time that perhaps only the witness page knew: the journal gets it now.
        engine.clock_mark.catch_up()
        engine.expire_all(engine.now())
        engine.snapshots.look_over()
        self._progress(1.0)
        checkpointer = Checkpointer(engine, predecessor)
        engine.recovered = True
        return checkpointer

    def _sign(self, lost_frames: LostFrames) -> bool:
        """This process answers for the journal from now on; False when it cannot write what is missing."""
        engine = self._engine
        if not lost_frames.journal_holes():
            return False
        # Only now, with the holes on disk, may the page forget what the previous process had promised.
        reserved = max((topic.reserve_asked for topic in engine.by_id.values()), default=0)
        engine.witness.begin(engine.journal.position, engine.now(), reserved)
        engine.follow_clock()
        return True

    # --- snapshot ---------------------------------------------------------------------------------------

    def _choose_snapshot(self) -> SnapshotState:
        for body in self._engine.snapshots.newest_first():
            state = decode(body)
            if state is not None:
                return state
            log.warning("a damaged snapshot is passed over")
        return _EMPTY

    def _refuse_unclaimed_state(self) -> None:
        claimed = {extension.name for extension in self._engine.extensions}
        unclaimed = self._snapshot.extensions.keys() - claimed
        if unclaimed:
            names = ", ".join(f'"{name}"' for name in sorted(unclaimed))
            raise RecoveryFailed(
                f"the snapshot holds the state of {names}, for which nothing here answers:"
                " the next snapshots would be without it"
            )

    def _restore_snapshot(self) -> None:
        engine, snapshot = self._engine, self._snapshot
        engine.next_topic_id = snapshot.next_topic_id
        engine.next_segment = snapshot.next_segment
        engine.shown_time.floor_ms = engine.clock_mark.reached_ms = snapshot.clock_ms
        engine.store.find_cold()
        for state in snapshot.topics:
            topic = add_recovered(engine, state.id, state.name, state.config, state.seq_base)
            restore_topic(topic, state)
        for extension in engine.extensions:
            if extension.name in snapshot.extensions:
                extension.load(snapshot.extensions[extension.name])
        engine.store.note_known()

    # --- journal ----------------------------------------------------------------------------------------

    def _replay(self, reader: JournalReader, lost_frames: LostFrames) -> None:
        engine, snapshot = self._engine, self._snapshot
        start, position = snapshot.replay_from, snapshot.position
        by_kind = {kind: extension for extension in engine.extensions for kind in extension.kinds}
        claimed = _OWN_KINDS.union(by_kind)
        reloading = Reload(engine, by_kind, snapshot)
        applying = JournalReplay(engine, by_kind, lost_frames, snapshot.next_topic_id)
        phase: Reload | JournalReplay = reloading
        report_at = start
        for item in join_small(reader.stretches(position), position):
            if phase is reloading and item.position >= position:
                reloading.settle()
                phase = applying
            if isinstance(item, Damage):
                lost_frames.note_damage(item)
            elif isinstance(item, SmallFrames):
                self._show_appends(item)
                if not phase.take_joined(item):
                    for frame in item.frames:
                        phase.take(frame)
            else:
                if item.kind == Kind.APPEND:
                    self._show_appends(item)
                elif item.kind not in claimed:
                    raise RecoveryFailed(
                        f"the journal has a frame of kind {item.kind} at position {item.position},"
                        " for which nothing here answers: what it says would be lost"
                    )
                phase.take(item)
            # By bytes, not by frames: a thousand large batches take as long as a million small ones.
            if item.position >= report_at:
                report_at = item.position + reader.size // REPORTS
                self._progress(min((item.position - start) / reader.size, 0.999))
        if phase is reloading:
            reloading.settle()

    def _show_appends(self, read: Frame | SmallFrames) -> None:
        for extension in self._engine.extensions:
            if extension.follows(read.topic_id):
                for frame in [read] if isinstance(read, Frame) else read.frames:
                    extension.append_read(frame)

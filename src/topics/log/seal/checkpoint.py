"""Checkpoints: seal what is full, write a snapshot, let go of journal and segments that are not needed.

    seal  ─▶  capture (on the loop, nothing pending)  ─▶  write snapshot (any thread)
          ─▶  release (on the loop)  ─▶  remove files (any thread)

What happens on the loop costs what is new since the last checkpoint, not what exists, and where that can be
much it is done in steps. The state of a topic is encoded when it has changed, and kept until it does again.

The two newest snapshots stay usable. Therefore journal and segments are kept as long as either needs them,
and a delete flag is flipped only after *two* snapshots know the deletion: replay from either one then starts
from flags that never run ahead of its state, and repeats every eviction exactly as it happened.
"""

import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from topics.log.engine import Engine
from topics.log.run import Run
from topics.log.seal.sealer import Sealer
from topics.log.seal.segment_store import entry_of
from topics.log.seal.snapshot_state import (
    CAPTURED_AS_IS,
    Part,
    SnapshotState,
    TopicState,
    encode_snapshot,
    encode_topic,
)
from topics.log.topic import Topic
from topics.storage import Segment, SegmentDamaged

# A checkpoint starts when this much was written since the last one, even if no run is full.
CHECKPOINT_BYTES = 64 * 1024 * 1024
# When hardly anything was written for so long, so much journal is worth a checkpoint that lets go of it.
QUIET_MS = 5000
QUIET_BYTES = 256 * 1024
IDLE_JOURNAL_BYTES = 16 * 1024 * 1024
# Time spent on the loop in one step of capturing.
STEP_S = 0.005


@dataclass(slots=True)
class _Flip:
    run: Run
    segment: int
    count: int
    is_done: bool = False


_segment_of = attrgetter("segment")


class Predecessor:
    """What the snapshot that recovery started from still needs until two newer ones exist.

    Taken before the journal is replayed on top of it. Without it, a server that checkpoints once in its
    life, at shutdown, would never let go of anything.
    """

    def __init__(self, engine: Engine, replay_from: int) -> None:
        self.replay_from = replay_from
        self.overlay = _unflipped(engine)
        self.unreferenced = set(engine.store.droppable())


def _unflipped(engine: Engine) -> list[_Flip]:
    return [
        _Flip(run, run.sealed.segment, len(run.sealed.unflipped))
        for run in sorted(engine.store.unflipped, key=Run.place)
        if run.sealed is not None
    ]


class Checkpointer:
    def __init__(self, engine: Engine, predecessor: Predecessor) -> None:
        self._engine = engine
        self.sealer = Sealer(engine)
        self._previous_replay_from = predecessor.replay_from
        self._previous_overlay = predecessor.overlay
        self._overlay: list[_Flip] = []
        self._flips: list[_Flip] = []
        self._last_position = engine.journal.position
        self._last_ms = engine.steady_ms()
        # Since when it has been quiet, by the journal's end at that time; and whether that was made use of.
        self._quiet_from, self._quiet_since_ms = self._last_position, self._last_ms
        self._is_tidy = False
        self._unreferenced = predecessor.unreferenced
        # The same for the snapshot that is being written.
        self._unreferenced_now: set[int] = set()
        self._known_damage = 0
        # The encoded state of every topic, as it was when it was last looked at.
        self._states: dict[int, bytes] = {}
        # How many have been made so far.
        self.passes = 0

    # --- when -------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        engine = self._engine
        if engine.queue.refusals.failure is not None:
            return False
        if engine.writes_off is not None:
            # On a full disk, where snapshots take from the reserve: only if it gives room back.
            return self._can_let_go()
        written = engine.journal.position - self._last_position
        waited_ms = engine.steady_ms() - self._last_ms
        if engine.totals.damage != self._known_damage:
            return True  # what a reader found missing is to be known to the next recovery
        if engine.snapshots.is_short:
            return True
        if written >= CHECKPOINT_BYTES or (written and waited_ms >= engine.settings.seal_age_ms):
            return True
        return bool(self._unreferenced or engine.store.droppable() or engine.store.unsealed.has_full)

    def is_idle(self) -> bool:
        """Whether it has become quiet, and there is journal whose records might as well be in segments.

        Once for every time that it does. Runs wait for more records, and keep their journal meanwhile; two
        snapshots keep what either needs. After a large job nothing more may come for long.
        """
        journal, now = self._engine.journal, self._engine.steady_ms()
        if journal.position - self._quiet_from > QUIET_BYTES:
            self._quiet_from, self._quiet_since_ms, self._is_tidy = journal.position, now, False
        is_quiet = now - self._quiet_since_ms >= QUIET_MS
        is_much = journal.retained_bytes() >= IDLE_JOURNAL_BYTES and journal.kept_from is None
        if self._is_tidy or not is_quiet or not is_much:
            return False
        self._is_tidy = True
        return True

    def _can_let_go(self) -> bool:
        """Whether there are files that the next snapshots will do without."""
        engine = self._engine
        if self._unreferenced or engine.store.droppable():
            return True
        oldest, journal = engine.journal.files[0], engine.journal
        needed_from = engine.store.unsealed.oldest_position(journal.position)
        is_kept = journal.kept_from is not None and journal.kept_from < oldest.end
        return len(journal.files) > 1 and oldest.end <= needed_from and not is_kept

    # --- snapshot ---------------------------------------------------------------------------------------

    def capture_step(self) -> bool:
        """Look at topics that have changed, for a few milliseconds; returns whether it was time to stop.

        Ahead of `capture`, while writes go on: what changes again is looked at again.
        """
        stop_at = time.perf_counter() + STEP_S
        changed = self._engine.store.changed
        waiting: list[int] = []
        while changed:
            if time.perf_counter() >= stop_at:
                changed.update(waiting)
                return True
            topic_id = changed.pop()
            topic = self._engine.by_id.get(topic_id)
            if topic is None:
                self._states.pop(topic_id, None)
            elif topic.committed:
                self._states[topic_id] = encode_topic(capture_topic(topic))
            else:
                waiting.append(topic_id)
        changed.update(waiting)
        return False

    def capture(self) -> tuple[list[Part], int]:
        """State at the journal's end; call it when nothing is between journal and application."""
        engine = self._engine
        while self.capture_step():
            pass
        self._overlay = _unflipped(engine)
        self._flips = [flip for flip in self._previous_overlay if not engine.store.is_frozen(flip.segment)]
        # Now and not later: what is adopted while the snapshot is written lies in journal above it, even if
        # all of it is gone by then.
        self._unreferenced_now = set(engine.store.droppable())
        position = engine.journal.position
        replay_from = engine.store.unsealed.oldest_position(position)
        now = engine.now()
        engine.clock_mark.restart(now)
        states = [(extension.name, extension.dump()) for extension in engine.extensions]
        state = SnapshotState(
            position,
            replay_from,
            engine.next_topic_id,
            engine.next_segment,
            now,
            [],
            {name: saved for name, saved in states if saved is not None},
        )
        return encode_snapshot(state, list(self._states.values())), replay_from

    def write_snapshot(self, body: list[Part]) -> None:
        """Off the loop. Once it is durable, deletions that two snapshots know may be flipped."""
        engine, joined = self._engine, b"".join(body)
        engine.require_home(engine.dirs.snapshots)
        engine.fs.sync_dir(engine.dirs.segments)
        engine.reserve.helping(len(joined), lambda: engine.snapshots.write(joined))
        # One file at a time: a deletion may concern more of them than there are descriptors.
        for number, flips in groupby(sorted(self._flips, key=_segment_of), key=_segment_of):
            self._flip_all(number, flips)

    def _flip_all(self, number: int, flips: Iterator[_Flip]) -> None:
        # The next reader of a damaged one will announce it.
        with suppress(SegmentDamaged), self._engine.store.open_for_flips(number) as segment:
            for flip in flips:
                with suppress(SegmentDamaged):
                    self._flip(flip, segment)
            segment.sync()

    def _flip(self, flip: _Flip, segment: Segment) -> None:
        sealed = flip.run.sealed
        if sealed is None or sealed.segment != flip.segment:
            return  # dropped or moved meanwhile
        indexes = np.frombuffer(sealed.unflipped[: flip.count].tobytes(), np.uint32)
        segment.flip(entry_of(segment, flip.run), indexes)
        flip.is_done = True

    def release(self, replay_from: int) -> list[str]:
        """On the loop again: forget flipped deletions, and files that neither snapshot refers to.

        Those are for `remove`, off the loop: a busy file system takes its time.
        """
        engine = self._engine
        flipped: dict[Run, int] = {}
        for flip in self._previous_overlay:
            if flip.is_done and flip.run.sealed is not None and flip.run.sealed.segment == flip.segment:
                flipped[flip.run] = flip.count
                del flip.run.sealed.unflipped[: flip.count]
                engine.store.changed.add(flip.run.topic_id)
                if not flip.run.sealed.unflipped:
                    engine.store.unflipped.discard(flip.run)
        for flip in self._overlay:
            # Counted when those that are flipped now were still in the list.
            flip.count -= flipped.get(flip.run, 0)
        self._previous_overlay = self._overlay
        gone = engine.journal.leave_behind(min(replay_from, self._previous_replay_from))
        self._previous_replay_from = replay_from
        # Unreferenced by the snapshot before this one as well: now the file can go.
        gone += [
            engine.store.forget(number) for number in self._unreferenced if not engine.store.is_pinned(number)
        ]
        self._unreferenced = self._unreferenced_now
        self._last_position = engine.journal.position
        self._last_ms = engine.steady_ms()
        self._known_damage = engine.totals.damage
        self.passes += 1
        return gone

    def remove(self, paths: list[str]) -> None:
        for path in paths:
            self._engine.require_home(path)
            self._engine.store.remove(path)

    def run_now(self, *, everything: bool = False) -> None:
        """The whole checkpoint in the caller's thread (in-process use, tests, shutdown)."""
        engine = self._engine
        sealer = self.sealer
        plan = sealer.plan(everything=everything)
        try:
            for file in plan:
                if not sealer.write(file):
                    break
                sealer.adopt(file)
        finally:
            sealer.abandon(plan)
        engine.queue.sync_journal()
        if engine.queue.refusals.failure is not None:
            return
        body, replay_from = self.capture()
        self.write_snapshot(body)
        self.remove(self.release(replay_from))


def capture_topic(topic: Topic) -> TopicState:
    """Everything but record data."""
    as_is: dict[str, Any] = {name: getattr(topic, name) for name in CAPTURED_AS_IS}
    return TopicState(
        id=topic.id,
        name=topic.name,
        config=topic.config,
        seq_base=topic.seq_base,
        runs=[run.capture() for run in topic.runs if run.sealed is not None or run.hot is None],
        unsealed_dead=_unsealed_dead(topic),
        holes=[hole.capture() for hole in topic.holes],
        ledger=topic.ledger.dump(),
        gone_times=b"" if topic.gone_times is None else topic.gone_times.pack(),
        **as_is,
    )


def _unsealed_dead(topic: Topic) -> bytes:
    return b"".join(
        (np.flatnonzero(np.frombuffer(run.dead, np.uint8)) + run.base).astype(np.int64).tobytes()
        for run in topic.runs
        if run.sealed is None and run.dead is not None
    )


def restore_topic(topic: Topic, state: TopicState) -> None:
    """Give a new topic the state that was captured; the journal has the records of the other runs."""
    topic.restore_marks(state)
    for saved in state.runs:
        run = Run(
            topic.id,
            saved.base,
            None,
            count=saved.count,
            live_count=saved.live_count,
            live_bytes=saved.live_bytes,
            first_ts=saved.first_ts,
            last_ts=saved.last_ts,
            dead_count=saved.dead_count,
        )
        if saved.segment:
            topic.store.seal(run, saved.segment, array("I", saved.unflipped))
        topic.insert_run(run)

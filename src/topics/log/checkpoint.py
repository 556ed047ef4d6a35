"""Checkpoints: seal what is full, write a snapshot, let go of journal and segments nobody needs.

    plan (on the loop)  ─▶  write segments (any thread)  ─▶  adopt, capture (on the loop, nothing pending)
                        ─▶  write snapshot (any thread)  ─▶  release files (on the loop)

What happens on the loop costs what is new since the last checkpoint, not what exists, and where that can be
much it is done in steps. The state of a topic is encoded when it has changed, and kept until it does again.

The two newest snapshots stay usable. Therefore journal and segments are kept as long as either needs them,
and a delete flag is flipped only after *two* snapshots know the deletion: replay from either one then starts
from flags that never run ahead of its state, and repeats every eviction exactly as it happened.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topics.log.hot import HotRuns
from topics.log.run import Run
from topics.log.state import SnapshotState, capture_topic, encode, encode_snapshot
from topics.log.topic import Topic
from topics.storage.segment import Segment, SegmentDamaged, SegmentWriter

if TYPE_CHECKING:
    from topics.log.engine import Engine

# Journal that may wait behind a slow topic before its half-full run is sealed with others.
JOURNAL_RETAIN_BYTES = 128 * 1024 * 1024
# A checkpoint starts when this much was written since the last one, even if no run is full.
CHECKPOINT_BYTES = 64 * 1024 * 1024
PACKED_FILE_BYTES = 64 * 1024 * 1024
# The list of a file's runs is written, and read by whoever opens it, in one go: some milliseconds.
PACKED_FILE_RUNS = 4096
# A topic that fills more runs than this between two checkpoints writes faster than files can be created and
# synced one by one; then so many of its runs share a file, and space comes back in larger steps.
SEPARATE_RUNS = 8
# Runs that are small by configuration are no sign of haste.
SEPARATE_SMALL_RUNS, SEPARATE_SMALL_BYTES = 64, 1024 * 1024
# A longer backlog is sealed in several checkpoints, so that journal and memory come back in between.
PASS_BYTES = 128 * 1024 * 1024
PASS_RUNS = 16_384
SHARED_RUNS = 16
# What is done on the loop in one step: runs planned or adopted, and seconds of capturing.
STEP_RUNS = 1024
STEP_S = 0.005


@dataclass(slots=True)
class _Sealing:
    topic: Topic
    run: Run
    dead: bytes | None
    written: bool = False


def _runs_per_file(sealings: list[_Sealing]) -> int:
    """Of one topic's full runs."""
    count = len(sealings)
    if count <= SEPARATE_RUNS:
        return 1
    size = sum(len(sealing.run.hot.rows) for sealing in sealings if sealing.run.hot is not None)
    is_small = count <= SEPARATE_SMALL_RUNS and size <= SEPARATE_SMALL_BYTES
    return 1 if is_small else SHARED_RUNS


@dataclass(slots=True)
class _Flip:
    run: Run
    segment: int
    count: int
    is_done: bool = False


@dataclass(slots=True)
class SegmentPlan:
    """One segment file to be written, and the runs that go into it."""

    number: int
    sealings: list[_Sealing]
    bytes: int = 0


class Predecessor:
    """What the snapshot that recovery started from still needs until two newer ones exist.

    Taken before the journal is replayed on top of it. Without it, a server that checkpoints once in its
    life, at shutdown, would never let go of anything.
    """

    __slots__ = ("overlay", "replay_from", "unreferenced")

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
        # The last plan left runs over that could have been sealed.
        self.is_behind = False
        self._previous_replay_from = predecessor.replay_from
        self._previous_overlay = predecessor.overlay
        self._overlay: list[_Flip] = []
        self._flips: list[_Flip] = []
        self._last_position = engine.journal.position
        self._last_ms = engine.now()
        self._unreferenced = predecessor.unreferenced
        self._known_damage = 0
        self._hot = HotRuns(engine.settings.hot_bytes)
        # The encoded state of every topic, as it was when it was last looked at.
        self._states: dict[int, bytes] = {}
        # What has been done so far: checkpoints, and what they moved into segments.
        self.passes = self.sealed_runs = self.sealed_bytes = 0
        for run, topic in engine.store.unsealed.runs.items():
            if run is not topic.runs[-1]:
                engine.store.unsealed.complete(run)

    @property
    def hot_bytes(self) -> int:
        """Memory of sealed runs that can be read without their files."""
        return self._hot.bytes

    # --- when -------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        engine = self._engine
        if engine.queue.failure is not None:
            return False
        written = engine.journal.position - self._last_position
        waited_ms = engine.now() - self._last_ms
        if engine.totals.damage != self._known_damage:
            return True  # what a reader found missing is to be known to the next recovery
        if written >= CHECKPOINT_BYTES or (written and waited_ms >= engine.settings.segment_max_age_ms):
            return True
        return bool(self._unreferenced or engine.store.droppable() or engine.store.unsealed.has_full)

    def _is_full(self, topic: Topic, run: Run) -> bool:
        engine = self._engine
        return (
            run.count >= engine.run_max_events
            or (run.hot is not None and len(run.hot.rows) >= engine.run_max_bytes)
            or run is not topic.runs[-1]
        )

    # --- what -------------------------------------------------------------------------------------------

    def plan(self, *, everything: bool = False, upto: int = 0) -> list[SegmentPlan]:
        """Choose runs. Full ones get files of their own; half-full stragglers are packed together.

        Runs that depend on the journal below `upto` are chosen, full or not.
        """
        plan: list[SegmentPlan] = []
        for _ in self.plan_in_steps(plan, everything=everything, upto=upto):
            pass
        return plan

    def plan_in_steps(
        self, plan: list[SegmentPlan], *, everything: bool = False, upto: int = 0
    ) -> Iterator[None]:
        """The same, into the given list. From when it is chosen, a run does not grow any more."""
        engine = self._engine
        unsealed = engine.store.unsealed
        keep_from = max(engine.journal.position - JOURNAL_RETAIN_BYTES, upto)
        born_before = engine.now() - engine.settings.segment_max_age_ms
        self.is_behind = False
        planned_bytes = 0
        packed = SegmentPlan(0, [])
        whole: dict[Topic, list[_Sealing]] = {}
        if everything:
            candidates = list(unsealed.runs)
        else:
            candidates = unsealed.take(keep_from, born_before, PASS_RUNS)
            self.is_behind = len(candidates) >= PASS_RUNS
        for at, run in enumerate(candidates):
            if at % STEP_RUNS == STEP_RUNS - 1:
                yield
            topic = unsealed.runs.get(run)
            if topic is None or run.hot is None:
                continue
            full = self._is_full(topic, run)
            old = run.first_ts < born_before
            if not (full or everything or old or run.start_position < keep_from):
                continue
            is_enough = planned_bytes >= PASS_BYTES and not everything
            self.is_behind |= is_enough
            if is_enough or run.frozen or run.last > topic.head:
                unsealed.complete(run)  # for the next checkpoint
                continue
            sealing = _Sealing(topic, run, None if run.dead is None else bytes(run.dead))
            run.frozen = True
            planned_bytes += len(run.hot.rows)
            if full:
                whole.setdefault(topic, []).append(sealing)
                continue
            packed.sealings.append(sealing)
            packed.bytes += len(run.hot.rows)
            if packed.bytes >= PACKED_FILE_BYTES or len(packed.sealings) >= PACKED_FILE_RUNS:
                plan.append(packed)
                packed = SegmentPlan(0, [])
        for sealings in whole.values():
            width = _runs_per_file(sealings)
            plan += [
                SegmentPlan(0, sealings[first : first + width]) for first in range(0, len(sealings), width)
            ]
        if packed.sealings:
            plan.append(packed)
        for file in plan:
            file.number = self._next_number()

    def _next_number(self) -> int:
        number = self._engine.next_segment
        self._engine.next_segment += 1
        return number

    def write_segment(self, file: SegmentPlan) -> None:
        """Off the loop: the runs are frozen, and deletions were copied."""
        engine = self._engine
        writer = SegmentWriter(file.number)
        for sealing in file.sealings:
            hot = sealing.run.hot
            if hot is None:
                continue  # emptied meanwhile
            dead = None if sealing.dead is None else np.frombuffer(sealing.dead, np.uint8)
            writer.add(sealing.topic.id, hot.view(sealing.run.base), dead)
            sealing.written = True
        if writer.entries:
            writer.write(engine.fs, engine.dirs.segments, file.number)

    def adopt(self, file: SegmentPlan) -> None:
        for _ in self.adopt_in_steps(file):
            pass

    def adopt_in_steps(self, file: SegmentPlan) -> Iterator[None]:
        """Back on the loop: the segment is written, so its runs may refer to it and leave memory.

        Its name is made durable before a snapshot mentions it; until then the journal has the records.
        """
        store = self._engine.store
        for at, sealing in enumerate(file.sealings):
            if at % STEP_RUNS == STEP_RUNS - 1:
                yield
            run = sealing.run
            if not sealing.written or run.hot is None:
                continue  # emptied meanwhile
            store.seal(run, file.number, _deleted_since(run, sealing.dead))
            self._hot.add(sealing.topic, run)
            self.sealed_runs += 1
            self.sealed_bytes += len(run.hot.rows)
            self._hot.shrink(store.unsealed.bytes)
        store.note_file(file.number)

    def abandon(self, plan: list[SegmentPlan]) -> None:
        """Runs of files that could not be written are free to grow, and to be planned again."""
        for file in plan:
            for sealing in file.sealings:
                if sealing.run.sealed is None:
                    sealing.run.frozen = False
                    self._engine.store.unsealed.complete(sealing.run)

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
                self._states[topic_id] = encode(capture_topic(topic))
            else:
                waiting.append(topic_id)
        changed.update(waiting)
        return False

    def capture(self) -> tuple[list[bytes], int]:
        """State at the journal's end; call it when nothing is between journal and application."""
        engine = self._engine
        while self.capture_step():
            pass
        self._overlay = _unflipped(engine)
        self._flips = [flip for flip in self._previous_overlay if not engine.store.is_frozen(flip.segment)]
        position = engine.journal.position
        replay_from = engine.store.unsealed.oldest_position(position)
        now = engine.now()
        engine.clock_mark.restart(now)
        state = SnapshotState(
            position,
            replay_from,
            engine.next_topic_id,
            engine.next_segment,
            now,
            [],
            {extension.name: extension.dump() for extension in engine.extensions},
        )
        return encode_snapshot(state, list(self._states.values())), replay_from

    def write_snapshot(self, body: list[bytes]) -> None:
        """Off the loop. Once it is durable, deletions that two snapshots know may be flipped."""
        self._engine.fs.sync_dir(self._engine.dirs.segments)
        self._engine.snapshots.write(b"".join(body))
        opened: dict[int, Segment] = {}
        for flip in self._flips:
            try:
                self._flip(flip, opened)
            except SegmentDamaged:
                continue  # whoever reads it next will announce it
        for segment in opened.values():
            segment.sync()
            segment.close()

    def _flip(self, flip: _Flip, opened: dict[int, Segment]) -> None:
        sealed = flip.run.sealed
        if sealed is None or sealed.segment != flip.segment:
            return  # dropped or moved meanwhile
        if flip.segment not in opened:
            opened[flip.segment] = self._engine.store.open_for_flips(flip.segment)
        segment = opened[flip.segment]
        indexes = np.frombuffer(sealed.unflipped[: flip.count].tobytes(), np.uint32)
        segment.flip(segment.entry(flip.run.topic_id, flip.run.base), indexes)
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
        self._unreferenced = set(engine.store.droppable())
        self._last_position = engine.journal.position
        self._last_ms = engine.now()
        self._known_damage = engine.totals.damage
        self.passes += 1
        return gone

    def remove(self, paths: list[str]) -> None:
        for path in paths:
            self._engine.fs.remove(path)

    def run_now(self, *, everything: bool = False) -> None:
        """The whole checkpoint in the caller's thread (in-process use, tests, shutdown)."""
        engine = self._engine
        plan = self.plan(everything=everything)
        try:
            for file in plan:
                self.write_segment(file)
                self.adopt(file)
        finally:
            self.abandon(plan)
        engine.queue.sync_journal()
        if engine.queue.failure is not None:
            return
        body, replay_from = self.capture()
        self.write_snapshot(body)
        self.remove(self.release(replay_from))


def _deleted_since(run: Run, known: bytes | None) -> array[int]:
    """Deletions that came after the copy that went into the segment's flags."""
    if run.dead is None:
        return array("I")
    marks = np.frombuffer(run.dead, np.uint8).copy()
    if known is not None:
        marks[: len(known)][np.frombuffer(known, np.uint8) != 0] = 0
    return array("I", np.flatnonzero(marks).astype(np.uint32).tobytes())

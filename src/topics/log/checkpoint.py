"""Checkpoints: seal what is full, write a snapshot, let go of journal and segments nobody needs.

    plan (on the loop)  ─▶  write segments (any thread)  ─▶  adopt, capture (on the loop, nothing pending)
                        ─▶  write snapshot (any thread)  ─▶  release files (on the loop)

The two newest snapshots stay usable. Therefore journal and segments are kept as long as either needs them,
and a delete flag is flipped only after *two* snapshots know the deletion: replay from either one then starts
from flags that never run ahead of its state, and repeats every eviction exactly as it happened.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topics.log.run import Run, SealedAt
from topics.log.state import SnapshotState, capture_topic, encode
from topics.log.topic import Topic
from topics.storage.segment import Segment, SegmentDamaged, SegmentWriter

if TYPE_CHECKING:
    from topics.log.engine import Engine

# Journal that may wait behind a slow topic before its half-full run is sealed with others.
JOURNAL_RETAIN_BYTES = 128 * 1024 * 1024
# A checkpoint starts when this much was written since the last one, even if no run is full.
CHECKPOINT_BYTES = 64 * 1024 * 1024
PACKED_FILE_BYTES = 64 * 1024 * 1024
# A topic that fills more runs than this between two checkpoints writes faster than files can be created and
# synced one by one; then so many of its runs share a file, and space comes back in larger steps.
SEPARATE_RUNS = 8
# A longer backlog is sealed in several checkpoints, so that journal and memory come back in between.
PASS_BYTES = 128 * 1024 * 1024
SHARED_RUNS = 16


@dataclass(slots=True)
class _Sealing:
    topic: Topic
    run: Run
    dead: bytes | None
    written: bool = False


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
        for topic in engine.by_id.values()
        for run in topic.runs
        if run.sealed is not None and run.sealed.unflipped
    ]


class Checkpointer:
    def __init__(self, engine: Engine, predecessor: Predecessor) -> None:
        self._engine = engine
        # The last plan left runs over that could have been sealed.
        self.is_behind = False
        self._previous_replay_from = predecessor.replay_from
        self._previous_overlay = predecessor.overlay
        self._overlay: list[_Flip] = []
        self._last_position = engine.journal.position
        self._last_ms = engine.now()
        self._unreferenced = predecessor.unreferenced
        self._known_damage = 0
        self._hot_sealed: list[tuple[Topic, Run]] = []
        self._hot_bytes = 0

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
        return bool(self._unreferenced or engine.store.droppable()) or any(
            self._is_full(topic, run) for topic in engine.touched for run in topic.runs[-8:]
        )

    def _is_full(self, topic: Topic, run: Run) -> bool:
        engine = self._engine
        if run.hot is None or run.frozen or run.ephemeral or run.last > topic.head:
            return False
        return (
            run.count >= engine.run_max_events
            or len(run.hot.rows) >= engine.run_max_bytes
            or run is not topic.runs[-1]
        )

    # --- what -------------------------------------------------------------------------------------------

    def plan(self, *, everything: bool = False) -> list[SegmentPlan]:
        """Choose runs. Full ones get files of their own; half-full stragglers are packed together."""
        engine = self._engine
        now = engine.now()
        keep_from = engine.journal.position - JOURNAL_RETAIN_BYTES
        plan: list[SegmentPlan] = []
        self.is_behind = False
        planned_bytes = 0
        packed: list[_Sealing] = []
        packed_bytes = 0
        for topic in engine.by_id.values():
            whole: list[_Sealing] = []
            for run in topic.runs:
                if run.hot is None or run.frozen or run.ephemeral or not run.live_count:
                    continue
                if run.last > topic.head or run.last < topic.floor:
                    continue
                full = self._is_full(topic, run)
                old = now - run.first_ts > engine.settings.segment_max_age_ms
                if not (full or everything or old or run.start_position < keep_from):
                    continue
                sealing = _Sealing(topic, run, None if run.dead is None else bytes(run.dead))
                if planned_bytes >= PASS_BYTES and not everything:
                    self.is_behind = True
                    break  # the next checkpoint goes on from here
                planned_bytes += len(run.hot.rows)
                if full:
                    whole.append(sealing)
                    continue
                packed.append(sealing)
                packed_bytes += len(run.hot.rows)
                if packed_bytes >= PACKED_FILE_BYTES:
                    plan.append(SegmentPlan(self._next_number(), packed))
                    packed, packed_bytes = [], 0
            width = 1 if len(whole) <= SEPARATE_RUNS else SHARED_RUNS
            plan += [
                SegmentPlan(self._next_number(), whole[at : at + width]) for at in range(0, len(whole), width)
            ]
        if packed:
            plan.append(SegmentPlan(self._next_number(), packed))
        for file in plan:
            for sealing in file.sealings:
                # From now on the run does not grow: its successor takes the next record.
                sealing.run.frozen = True
        return plan

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
        """Back on the loop: the segment is written, so its runs may refer to it and leave memory.

        Its name is made durable before a snapshot mentions it; until then the journal has the records.
        """
        store = self._engine.store
        store.users.setdefault(file.number, 0)
        for sealing in file.sealings:
            run = sealing.run
            if not sealing.written or run.hot is None:
                continue  # emptied meanwhile
            run.sealed = SealedAt(file.number, _deleted_since(run, sealing.dead))
            store.adopt(run, file.number)
            self._hot_sealed.append((sealing.topic, run))
            self._hot_bytes += run.hot.memory_bytes()
        self._shrink_hot()

    def abandon(self, plan: list[SegmentPlan]) -> None:
        """Runs of files that could not be written are free to grow, and to be planned again."""
        for file in plan:
            for sealing in file.sealings:
                if sealing.run.sealed is None:
                    sealing.run.frozen = False

    def _shrink_hot(self) -> None:
        """Oldest sealed runs leave memory first when the hot budget is used up."""
        at = 0
        while self._hot_bytes > self._engine.settings.hot_bytes and at < len(self._hot_sealed):
            topic, run = self._hot_sealed[at]
            at += 1
            if run.hot is None:
                continue
            self._hot_bytes -= run.hot.memory_bytes()
            topic.forget_tags(run)
            self._engine.store.forget_hot(run)
        if at:
            self._hot_sealed = [pair for pair in self._hot_sealed[at:] if pair[1].hot is not None]
            self._hot_bytes = sum(
                run.hot.memory_bytes() for _, run in self._hot_sealed if run.hot is not None
            )

    # --- snapshot ---------------------------------------------------------------------------------------

    def capture(self) -> tuple[bytes, int]:
        """State at the journal's end; call it when nothing is between journal and application."""
        engine = self._engine
        position = engine.journal.position
        replay_from = position
        states = []
        self._overlay = _unflipped(engine)
        for topic in engine.by_id.values():
            if not topic.committed:
                continue
            states.append(capture_topic(topic))
            for run in topic.runs:
                if run.sealed is None and run.hot is not None and not run.ephemeral:
                    replay_from = min(replay_from, run.start_position)
        state = SnapshotState(
            position,
            replay_from,
            engine.next_topic_id,
            engine.next_segment,
            engine.now(),
            states,
            {extension.name: extension.dump() for extension in engine.extensions},
        )
        return encode(state), replay_from

    def write_snapshot(self, body: bytes) -> None:
        """Off the loop. Once it is durable, deletions that two snapshots know may be flipped."""
        self._engine.fs.sync_dir(self._engine.dirs.segments)
        self._engine.snapshots.write(body)
        opened: dict[int, Segment] = {}
        for flip in self._previous_overlay:
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

    def release(self, replay_from: int) -> None:
        """On the loop again: forget flipped deletions, drop files that neither snapshot refers to."""
        engine = self._engine
        for flip in self._previous_overlay:
            if flip.is_done and flip.run.sealed is not None and flip.run.sealed.segment == flip.segment:
                del flip.run.sealed.unflipped[: flip.count]
        self._previous_overlay = self._overlay
        engine.journal.drop_below(min(replay_from, self._previous_replay_from))
        self._previous_replay_from = replay_from
        # Unreferenced by the snapshot before this one as well: now the file can go.
        for number in self._unreferenced:
            engine.store.remove(number)
        self._unreferenced = set(engine.store.droppable())
        self._last_position = engine.journal.position
        self._last_ms = engine.now()
        self._known_damage = engine.totals.damage

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
        self.release(replay_from)


def _deleted_since(run: Run, known: bytes | None) -> array[int]:
    """Deletions that came after the copy that went into the segment's flags."""
    if run.dead is None:
        return array("I")
    marks = np.frombuffer(run.dead, np.uint8).copy()
    if known is not None:
        marks[: len(known)][np.frombuffer(known, np.uint8) != 0] = 0
    return array("I", np.flatnonzero(marks).astype(np.uint32).tobytes())

"""When a run is sealed, and how: runs leave the journal for segments.

    plan (on the loop)  ─▶  write (any thread)  ─▶  adopt (on the loop)

Until a snapshot refers to the segment of a run, the journal has its records: a crash on the way costs nothing
but the work.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from topics.log.engine import Engine
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import SegmentWriter, is_full

# Journal that may wait behind a slow topic before its half-full run is sealed with others.
JOURNAL_RETAIN_BYTES = 128 * 1024 * 1024
PACKED_FILE_BYTES = 64 * 1024 * 1024
# The list of a file's runs is written, and read by the reader that opens it, in one go: some milliseconds.
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
# Runs that are planned or adopted on the loop in one step.
STEP_RUNS = 1024


@dataclass(slots=True)
class _Sealing:
    topic: Topic
    run: Run
    dead: bytes | None
    written: bool = False


@dataclass(slots=True)
class SegmentPlan:
    """One segment file to be written, and the runs that go into it."""

    number: int
    sealings: list[_Sealing]
    bytes: int = 0


class Sealer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # The last plan left runs over that could have been sealed.
        self.is_behind = False
        self._hot = HotRuns(engine.settings.hot_bytes)
        # What was moved into segments so far.
        self.sealed_runs = self.sealed_bytes = 0
        for run, topic in engine.store.unsealed.runs.items():
            if run is not topic.runs[-1]:
                engine.store.unsealed.complete(run)

    @property
    def hot_bytes(self) -> int:
        """Memory of sealed runs that can be read without their files."""
        return self._hot.bytes

    def make_room(self) -> None:
        """Sealed runs leave memory for what has come since."""
        self._hot.shrink(self._engine.store.unsealed.bytes)

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
        born_before = engine.now() - engine.settings.seal_age_ms
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
            run.freeze()
            planned_bytes += run.hot.size
            if full:
                whole.setdefault(topic, []).append(sealing)
                continue
            packed.sealings.append(sealing)
            packed.bytes += run.hot.size
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
            file.number = engine.take_segment_number()

    def _is_full(self, topic: Topic, run: Run) -> bool:
        return run is not topic.runs[-1] or self._engine.store.unsealed.has_reached_limit(run)

    def write(self, file: SegmentPlan, *, is_asked_for: bool = False) -> bool:
        """Off the loop: the runs are frozen, and deletions were copied. False when there is no room for it.

        With the help of the reserve, as far as that is not kept for removals: the journal that becomes
        dispensable gives room back. `is_asked_for`: that is what it is done for, so it may take more.
        """
        engine = self._engine
        engine.require_home(engine.dirs.segments)
        writer = SegmentWriter(file.number)
        for sealing in file.sealings:
            hot = sealing.run.hot
            if hot is None:
                continue  # emptied meanwhile
            dead = None if sealing.dead is None else np.frombuffer(sealing.dead, np.uint8)
            writer.add(sealing.topic.id, hot.view(), dead)
            sealing.written = True
        if not writer.entries:
            return True
        reserve, directory = engine.reserve, engine.dirs.segments

        def write() -> None:
            writer.write(engine.fs, directory, file.number)

        try:
            reserve.helping(writer.size, write, keep=reserve.rest if is_asked_for else reserve.half)
        except OSError as error:
            if not is_full(error):
                raise
            for sealing in file.sealings:
                sealing.written = False
            return False
        return True

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
            self._hot.add(run)
            self.sealed_runs += 1
            self.sealed_bytes += run.hot.size
            self._hot.shrink(store.unsealed.bytes)
        if any(sealing.written for sealing in file.sealings):
            store.note_file(file.number)

    def abandon(self, plan: list[SegmentPlan]) -> None:
        """Runs of files that could not be written are free to grow, and to be planned again."""
        for file in plan:
            for sealing in file.sealings:
                if sealing.run.sealed is None:
                    sealing.run.thaw()
                    self._engine.store.unsealed.complete(sealing.run)


class HotRuns:
    """Sealed runs that are still in memory, because they fit: the oldest leave first."""

    def __init__(self, budget: int) -> None:
        """`budget`: what these runs and those that are not sealed yet may take together."""
        self._budget = budget
        # With the size it was added with; one whose records are gone meanwhile still has its turn.
        self._runs: deque[tuple[Run, int]] = deque()
        self.bytes = 0

    def add(self, run: Run) -> None:
        assert run.hot is not None
        size = run.hot.weight
        self._runs.append((run, size))
        self.bytes += size

    def shrink(self, unsealed_bytes: int) -> None:
        while self._runs and self.bytes + unsealed_bytes > self._budget:
            run, size = self._runs.popleft()
            self.bytes -= size
            if run.hot is not None:
                run.leave_memory()


def _runs_per_file(sealings: list[_Sealing]) -> int:
    """Of one topic's full runs."""
    count = len(sealings)
    if count <= SEPARATE_RUNS:
        return 1
    size = sum(sealing.run.hot.size for sealing in sealings if sealing.run.hot is not None)
    is_small = count <= SEPARATE_SMALL_RUNS and size <= SEPARATE_SMALL_BYTES
    return 1 if is_small else SHARED_RUNS


def _deleted_since(run: Run, known: bytes | None) -> "array[int]":
    """Deletions that came after the copy that went into the segment's flags."""
    if run.dead is None:
        return array("I")
    marks = np.frombuffer(run.dead, np.uint8).copy()
    if known is not None:
        marks[: len(known)][np.frombuffer(known, np.uint8) != 0] = 0
    return array("I", np.flatnonzero(marks).astype(np.uint32).tobytes())

"""Below the snapshot: record data of frames whose effects it holds already only has to be brought back."""

from collections.abc import Mapping

import numpy as np

from topics.codec import AnyRows
from topics.log.engine import Engine
from topics.log.extension import Extension
from topics.log.recover.small_frames import SmallFrames, decode_rows, rows_of
from topics.log.remove import ledger
from topics.log.remove.removal import settle_floor, stretches_of
from topics.log.run import HotColumns, Run, Times
from topics.log.seal.snapshot_state import SnapshotState
from topics.log.topic import Topic
from topics.storage import Frame, Kind


class Reload:
    """Takes the frames that come before the snapshot, and settles the accounts when there are no more."""

    def __init__(self, engine: Engine, by_kind: Mapping[int, Extension], snapshot: SnapshotState) -> None:
        self._engine = engine
        self._by_kind = by_kind
        self._found_ms = max(engine.opened_ms, engine.shown_time.floor_ms)
        self._unsealed_dead = {topic.id: topic.unsealed_dead for topic in snapshot.topics}

    def take(self, frame: Frame) -> None:
        if frame.kind == Kind.APPEND:
            topic, first = self._engine.by_id.get(frame.topic_id), frame.first_seq
            if topic is None or frame.last_seq < topic.floor or first > topic.head or is_loaded(topic, first):
                return
            load_rows(self._engine, topic, rows_of(frame), frame.position)
        elif frame.kind in self._by_kind:
            self._by_kind[frame.kind].reload(frame)

    def take_joined(self, joined: SmallFrames) -> bool:
        """Small frames as if they were one; False where that would make a difference."""
        topic = self._engine.by_id.get(joined.topic_id)
        if topic is None:
            return False
        first, last = joined.first_seq, joined.last_seq
        if first < topic.floor or last > topic.head or any(topic.runs.stretches(first, last + 1)):
            return False
        load_rows(self._engine, topic, decode_rows(joined), joined.position, joined.times())
        return True

    def settle(self) -> None:
        """All data the snapshot speaks of has been read: mark deletions, count, find what is missing."""
        for topic in self._engine.by_id.values():
            self._mark_unsealed(topic)
            self._find_missing(topic)
            topic.settle_totals()
            settle_floor(topic)

    def _mark_unsealed(self, topic: Topic) -> None:
        dead = np.frombuffer(self._unsealed_dead.get(topic.id, b""), np.int64)
        for run in topic.runs:
            if run.hot is None:
                continue
            inside = dead[(dead >= run.base) & (dead <= run.last)] - run.base
            marks = None
            if len(inside):
                marks = bytearray(run.count)
                np.frombuffer(marks, np.uint8)[inside] = 1
            run.restore_marks(marks, topic.floor)

    def _find_missing(self, topic: Topic) -> None:
        """Every seq from floor to head is in a run or in a known hole; the rest was lost."""
        expected = topic.floor
        anything_below = False
        known = [(hole.first, hole.last) for hole in topic.holes]
        spans = sorted([(run.base, run.last) for run in topic.runs] + known)
        live_runs = {run.base: run.live_count for run in topic.runs}
        for first, last in [*spans, (topic.head + 1, topic.head)]:
            if first > expected:
                self._tell_layer(topic, expected, first - 1)
                topic.note_hole(
                    expected, first - 1, ledger.LOST, interior=anything_below, found_ms=self._found_ms
                )
                if topic.config.durability != "ephemeral":  # otherwise they were not expected to be there
                    self._engine.totals.found_damage()
            if live_runs.get(first):
                anything_below = True
            expected = max(expected, last + 1)

    def _tell_layer(self, topic: Topic, first: int, last: int) -> None:
        """Some of what is missing may have been deleted before."""
        if topic.extension is not None:
            dead = np.sort(np.frombuffer(self._unsealed_dead.get(topic.id, b""), np.int64))
            inside = dead[np.searchsorted(dead, first) : np.searchsorted(dead, last, side="right")]
            for begin, end in stretches_of(inside):
                topic.extension.note_deleted(begin, end, end - begin + 1)


def is_loaded(topic: Topic, seq: int) -> bool:
    """True when a sealed or emptied run answers for this seq, or its data has been read already."""
    return topic.runs.run_at(seq) is not None


def load_rows(engine: Engine, topic: Topic, rows: AnyRows, position: int, times: Times | None = None) -> None:
    """Put records into the run that takes them; they can be read again from `position` on."""
    first_seq = rows.first_seq
    run = topic.runs.run_at(first_seq - 1)
    if run is None or run.hot is None or run.last != first_seq - 1 or engine.store.unsealed.is_full(run):
        run = Run(topic.id, first_seq, HotColumns(first_seq), start_position=position)
        topic.insert_run(run)
    if position < run.start_position:
        engine.store.unsealed.lower(run, position)
    engine.store.unsealed.grew(run, run.extend(rows, times))

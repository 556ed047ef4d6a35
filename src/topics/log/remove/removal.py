"""Records leave a topic: from the front, one by one, or with a segment that turned out to be damaged."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import numpy as np

from topics.log.holes import note_hole
from topics.log.remove import ledger
from topics.log.run import HotColumns, Run
from topics.log.topic import Topic
from topics.storage.columns import U32, Columns
from topics.storage.segment import SegmentDamaged

T = TypeVar("T")


def drop_front(topic: Topic, upto: int, kind: int) -> tuple[int, int]:
    """Remove every live record up to `upto`; returns how many there were and the last of them."""
    upto = min(upto, topic.head)
    removed = last_live = 0
    while topic.runs and topic.runs[0].base <= upto:
        run = topic.runs[0]
        start = max(topic.floor - run.base, 0)
        stop = min(run.count, upto - run.base + 1)
        if stop > start:
            try:
                if run.live_count:
                    topic.load_marks(run)
                count, size = _take(topic, run, start, stop)
            except SegmentDamaged:
                lose_runs(topic, [run])
                continue
            if count:
                last_live = run.base + _last_live(run, start, stop)
            _account(topic, run, start, stop, kind)
            topic.add_live(-count, -size)
            topic.totals.removed(kind, count, size)
            removed += count
            topic.floor = run.base + stop
        if stop < run.count:
            break
        _pop_run(topic)
    settle_floor(topic, max(topic.floor, upto + 1))
    return removed, last_live


def _take(topic: Topic, run: Run, start: int, stop: int) -> tuple[int, int]:
    """Strike a stretch from the run's counters; returns live records and live bytes in it."""
    if stop == run.count or not run.live_count:
        count, size = run.live_count, run.live_bytes
        run.live_count = run.live_bytes = 0
        return count, size
    if run.hot is not None and run.dead is None:
        count, size = stop - start, run.hot.size_between(start, stop)
    else:
        columns = topic.store.columns(run)
        count = run.live_between(start, stop)
        size = int(run.live_sizes(columns, start, stop).sum())
    run.live_count -= count
    run.live_bytes -= size
    return count, size


def _account(topic: Topic, run: Run, start: int, stop: int, kind: int) -> None:
    """Write the stretch into the ledger, telling what was deleted before from what goes now."""
    base = run.base
    emptied_by_deletes = run.hot is None and run.sealed is None
    if run.dead is None or kind == ledger.DELETED:
        topic.ledger.add(base + start, base + stop - 1, ledger.DELETED if emptied_by_deletes else kind)
        return
    marks = np.frombuffer(run.dead, np.uint8)[start:stop]
    edges = np.flatnonzero(np.diff(marks)) + 1
    bounds = [0, *edges.tolist(), stop - start]
    for left, right in pairwise(bounds):
        part = ledger.DELETED if marks[left] else kind
        topic.ledger.add(base + start + left, base + start + right - 1, part)
    del marks


def _pop_run(topic: Topic) -> None:
    run = topic.runs.pop(0)
    topic.bases.pop(0)
    topic.forget_tags(run)
    topic.store.release(run)


def _last_live(run: Run, start: int, stop: int) -> int:
    return stop - 1 if run.dead is None else run.dead.rfind(0, start, stop)


def settle_floor(topic: Topic, at_least: int) -> None:
    """Let the floor rise to the first live seq; what it passes on the way was deleted before."""
    surviving_damage(topic, lambda: _settle_floor(topic, at_least))


def _settle_floor(topic: Topic, at_least: int) -> None:
    topic.note_change()
    floor = topic.first_live(max(at_least, topic.floor)) if topic.live_count else topic.head + 1
    position = topic.floor
    while topic.runs and topic.runs[0].base < floor:
        run = topic.runs[0]
        start = max(position - run.base, 0)
        stop = min(run.count, floor - run.base)
        if stop > start:
            topic.ledger.add(run.base + start, run.base + stop - 1, ledger.DELETED)
        if stop < run.count:
            break
        _pop_run(topic)
    topic.floor = max(floor, topic.floor)
    topic.floor_ts = _ts_at_floor(topic)


def _ts_at_floor(topic: Topic) -> int:
    if not topic.live_count:
        return 0
    run = topic.runs[0]
    if run.hot is not None:
        return run.hot.ts_at(topic.floor - run.base)
    return int(topic.store.columns(run).ts[topic.floor - run.base])


def mark_dead(topic: Topic, run: Run, indexes: np.ndarray) -> int:
    """Delete records of one run by index; returns how many of them were live until now."""
    # In memory a whole view would cost more than the deletion of a few.
    columns: HotColumns | Columns = topic.store.columns(run) if run.hot is None else run.hot
    if run.dead is None:
        run.dead = bytearray(run.count)
    marks = np.frombuffer(run.dead, np.uint8)
    fresh = indexes[marks[indexes] == 0]
    count = len(fresh)
    if count:
        marks[fresh] = 1
        size = columns.size_of(fresh)
        run.dead_count += count
        run.live_count -= count
        run.live_bytes -= size
        topic.add_live(-count, -size)
        topic.totals.removed(ledger.DELETED, count, size)
        if run.sealed is not None:
            run.sealed.unflipped.extend(array("I", fresh.astype(np.uint32).tobytes()))
            topic.store.unflipped.add(run)
    del marks, columns
    return count


def strike(topic: Topic, run: Run, indexes: U32, size: int) -> int:
    """Delete records of a run that are known to be live, with their size; returns how many."""
    count = len(indexes)
    if not count:
        return 0
    run.dead_count += count
    run.live_count -= count
    run.live_bytes -= size
    topic.add_live(-count, -size)
    topic.totals.removed(ledger.DELETED, count, size)
    if run.hot is not None:
        if run.dead is None:
            run.dead = bytearray(run.count)
        np.frombuffer(run.dead, np.uint8)[indexes] = 1
    if run.sealed is not None:
        run.sealed.unflipped.frombytes(indexes.astype(np.uint32, copy=False).tobytes())
        topic.store.unflipped.add(run)
        topic.store.unload(run)
    return count


def surviving_damage(topic: Topic, action: Callable[[], T]) -> T:
    """Run `action`; when it meets a damaged segment, turn that run into a hole and try again.

    A file that could not be read a moment ago and can be read now costs nobody a record.
    """
    was_passing = False
    while True:
        try:
            return action()
        except SegmentDamaged:
            damaged = [run for run in topic.runs if not _readable(topic, run)]
            if not damaged and was_passing:
                raise
            was_passing = not damaged
            if damaged:
                lose_runs(topic, damaged)


def _readable(topic: Topic, run: Run) -> bool:
    if run.live_count == 0:
        return True
    try:
        topic.store.columns(run)
    except SegmentDamaged:
        return False
    return True


def lose_runs(topic: Topic, damaged: list[Run]) -> None:
    """Sealed runs turned out to be damaged: what they held is announced as lost."""
    for run in damaged:
        index = topic.runs.index(run)
        at_front = not any(below.live_count for below in topic.runs[:index])
        topic.add_live(-run.live_count, -run.live_bytes)
        topic.totals.removed(ledger.LOST, run.live_count, run.live_bytes)
        topic.store.release(run)
        del topic.runs[index], topic.bases[index]
        note_hole(topic, max(run.base, topic.floor), run.last, ledger.LOST, interior=not at_front)
        topic.totals.damage += 1
    settle_floor(topic, topic.floor)

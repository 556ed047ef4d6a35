"""Records leave a topic: from the front, one by one, or with a segment that turned out to be damaged."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import ParamSpec, TypeVar

import numpy as np

from topics.log.remove import ledger
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import I64, U32, SegmentDamaged

T = TypeVar("T")
P = ParamSpec("P")


def remove_front(topic: Topic, upto: int, kind: int) -> tuple[int, int]:
    """Remove every live record up to `upto`; returns how many there were and the last of them."""
    upto = min(upto, topic.head)
    removed = last_live = 0
    while topic.runs and topic.runs[0].base <= upto:
        run = topic.runs[0]
        start = max(topic.floor - run.base, 0)
        stop = min(run.count, upto - run.base + 1)
        if stop > start:
            try:
                if run.live_count and stop < run.count:
                    if run.dead_count and run.dead is None:
                        topic.load_marks(run)
                elif run.live_count and kind != ledger.DELETED:
                    topic.load_last_marks(run)
                count, size = run.remove_between(start, stop, topic.store.columns)
            except SegmentDamaged:
                lose_runs(topic, [run])
                continue
            if count:
                last = stop - 1 if run.dead is None else run.dead.rfind(0, start, stop)
                last_live = run.base + last
            _account(topic, run, start, stop, kind)
            topic.add_live(-count, -size)
            topic.totals.removed(kind, count, size)
            removed += count
            topic.raise_floor(run.base + stop)
        if stop < run.count:
            break
        topic.remove_run(run)
    settle_floor(topic)
    return removed, last_live


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


def settle_floor(topic: Topic) -> None:
    """Let the floor rise to the first live seq; what it passes on the way was deleted before."""
    surviving_damage(topic, _settle_floor, topic)


def _settle_floor(topic: Topic) -> None:
    topic.note_change()
    floor = topic.first_live(topic.floor) if topic.live_count else topic.head + 1
    position = topic.floor
    while topic.runs and topic.runs[0].base < floor:
        run = topic.runs[0]
        start = max(position - run.base, 0)
        stop = min(run.count, floor - run.base)
        topic.ledger.add(run.base + start, run.base + stop - 1, ledger.DELETED)
        if stop < run.count:
            break
        topic.remove_run(run)
    if not topic.live_count:
        topic.raise_floor(floor, 0)
        return
    run = topic.runs[0]
    if run.hot is not None:
        topic.raise_floor(floor, run.hot.ts_at(floor - run.base))
        return
    # First without the time, which may be in a damaged file: what the floor has passed is in the ledger now.
    topic.raise_floor(floor)
    topic.raise_floor(floor, int(topic.store.columns(run).ts[floor - run.base]))


def delete_live(topic: Topic, run: Run, indexes: I64 | U32, size: int) -> int:
    """Delete records of a run that are known to be live, with their size; returns how many.

    A run without a live record gives back memory and file at once. One that is not sealed yet does so too: it
    would never be sealed, and hold its journal for ever.
    """
    count = len(indexes)
    if count:
        run.delete(indexes, size)
        topic.add_live(-count, -size)
        topic.totals.removed(ledger.DELETED, count, size)
        if run.sealed is not None:
            topic.store.unflipped.add(run)
        if not run.live_count:
            topic.release_run(run)
    return count


def surviving_damage(topic: Topic, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `action`; when it meets a damaged segment, turn that run into a hole and try again.

    A file that could not be read a moment ago and can be read now costs no record.
    """
    was_passing = False
    while True:
        try:
            return action(*args, **kwargs)
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


def _tell_layer(topic: Topic, run: Run, first: int) -> None:
    """A hole will cover what had been deleted before, too; which records those were may be lost as well."""
    if topic.extension is None or not run.dead_count:
        return
    if run.dead is None:
        topic.extension.note_deleted(first, run.last, run.last - first + 1 - run.live_count)
        return
    marks = np.frombuffer(run.dead, np.uint8)[first - run.base :]
    for begin, end in stretches_of(np.flatnonzero(marks) + first):
        topic.extension.note_deleted(begin, end, end - begin + 1)


def stretches_of(seqs: I64) -> Iterator[tuple[int, int]]:
    """Ascending seqs as first and last of each stretch without a gap."""
    if len(seqs):
        edges = np.flatnonzero(np.diff(seqs) > 1)
        firsts, lasts = seqs[np.append(0, edges + 1)], seqs[np.append(edges, len(seqs) - 1)]
        yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


def lose_runs(topic: Topic, damaged: list[Run]) -> None:
    """Sealed runs turned out to be damaged: what they held is announced as lost."""
    for run in damaged:
        index = topic.runs.index(run)
        at_front = not any(below.live_count for below in topic.runs[:index])
        first = max(run.base, topic.floor)
        _tell_layer(topic, run, first)
        topic.add_live(-run.live_count, -run.live_bytes)
        topic.totals.removed(ledger.LOST, run.live_count, run.live_bytes)
        topic.remove_run(run)
        topic.note_hole(first, run.last, ledger.LOST, interior=not at_front, found_ms=topic.totals.now_ms())
        topic.totals.damage += 1
    settle_floor(topic)

"""Records leave a topic: by age and by caps, from the front, one by one, or with a damaged segment.

Age and caps take records that no client asked to remove. Only records that were live move the loss line.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from topics.core import TopicConfig
from topics.log.remove import ledger
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import I64, U32, SegmentDamaged

T = TypeVar("T")
P = ParamSpec("P")


# --- damage ---------------------------------------------------------------------------------------------


def surviving_damage(action: Callable[Concatenate[Topic, P], T]) -> Callable[Concatenate[Topic, P], T]:
    """Decorate an action on a topic: a damaged segment that it meets becomes a hole, and it is repeated.

    A file that could not be read a moment ago and can be read now costs no record.
    """

    @wraps(action)
    def repeated(topic: Topic, /, *args: P.args, **kwargs: P.kwargs) -> T:
        was_passing = False
        while True:
            try:
                return action(topic, *args, **kwargs)
            except SegmentDamaged:
                damaged = [run for run in topic.runs if not _readable(topic, run)]
                if not damaged and was_passing:
                    raise
                was_passing = not damaged
                if damaged:
                    lose_runs(topic, damaged)

    return repeated


# --- age and caps -----------------------------------------------------------------------------------------


def expire(topic: Topic, now_ms: int, *, at_once: bool = False) -> None:
    """Drop records older than the TTL; a record aged exactly the TTL stays.

    `at_once`: the TTL is new, and takes them now, however long they have been older than it.
    """
    ttl_ms = topic.config.ttl_ms
    if not ttl_ms or not topic.live_count:
        return
    oldest_allowed = now_ms - ttl_ms
    if topic.floor_ts >= oldest_allowed:
        return
    topic.clock_mark.cover(now_ms)
    takes_ephemeral = topic.mixed or topic.runs[0].ephemeral
    upto, last_ts = _last_older(topic, oldest_allowed)
    floor, floor_ts = topic.floor, topic.floor_ts
    removed, last = remove_front(topic, upto, ledger.TTL)
    if removed:
        topic.raise_line(ledger.TTL, last, unnoted=takes_ephemeral)
        # No reader has had them from their own moment on, whenever it is that somebody looks.
        went = (now_ms, now_ms) if at_once else (floor_ts + ttl_ms + 1, last_ts + ttl_ms + 1)
        topic.note_gone(floor, last, *went)
        topic.check_marks()


@surviving_damage
def _last_older(topic: Topic, oldest_allowed: int) -> tuple[int, int]:
    """The last seq whose record is older than `oldest_allowed`, and its time; timestamps never fall."""
    upto, last_ts = topic.floor - 1, 0
    for run in topic.runs:
        if not run.live_count:
            continue
        if run.last_ts < oldest_allowed:
            upto, last_ts = run.last, run.last_ts
            continue
        if run.first_ts < oldest_allowed:
            ts = topic.store.columns(run).ts
            index = int(np.searchsorted(ts, oldest_allowed)) - 1
            upto, last_ts = run.base + index, int(ts[index])
        break
    return upto, last_ts


def keep_lines(topic: Topic, cap_hi: int, ttl_hi: int, by_ms: int) -> None:
    """Lines that had been shown by then: what is still found below them goes the way it had gone before."""
    floor = topic.floor
    for line, kind in sorted(((cap_hi, ledger.CAP), (ttl_hi, ledger.TTL))):
        if line >= topic.floor:
            remove_front(topic, line, kind)
    topic.note_gone(floor, topic.floor - 1, 0, by_ms)
    topic.raise_line(ledger.CAP, cap_hi)
    topic.raise_line(ledger.TTL, ttl_hi)


@surviving_damage
def would_remove(topic: Topic, config: TopicConfig, now_ms: int) -> int:
    """How many records this config would take away at once. Nothing is changed."""
    count = topic.live_count
    older = _last_older(topic, now_ms - config.ttl_ms)[0] if config.ttl_ms else topic.floor - 1
    if config.cap_bytes:
        older = max(older, _bytes_prefix(topic, config.cap_bytes))
    return max(_live_upto(topic, older), count - config.cap_records if config.cap_records else 0)


def _live_upto(topic: Topic, seq: int) -> int:
    found = 0
    for run, start, stop in topic.runs.stretches(topic.floor, seq + 1):
        if run.live_count:
            topic.load_marks(run)
            found += run.live_between(start, stop)
    return found


def enforce_caps(topic: Topic, now_ms: int | None = None) -> None:
    """Evict the oldest live records until both caps hold.

    `now_ms`: the time, if it was not the last write that left no room for them.
    """
    config = topic.config
    if config.cap_records and topic.live_count > config.cap_records:
        _evict(topic, now_ms, _last_above_records(topic))
    if config.cap_bytes and topic.live_bytes > config.cap_bytes:
        _evict(topic, now_ms, _bytes_prefix(topic, config.cap_bytes))


def _evict(topic: Topic, now_ms: int | None, upto: int) -> None:
    floor = topic.floor
    removed, last = remove_front(topic, upto, ledger.CAP)
    if removed:
        topic.raise_line(ledger.CAP, last)
        went_ms = topic.last_ts if now_ms is None else now_ms
        topic.note_gone(floor, last, went_ms, went_ms)
        topic.check_marks()


@surviving_damage
def _last_above_records(topic: Topic) -> int:
    """Return the seq of the last record that `cap_records` leaves no room for."""
    n = topic.live_count - topic.config.cap_records
    if n <= 0:
        return topic.floor - 1  # a damaged run has gone, and its records with it
    for run in topic.runs:
        if run.live_count <= n:
            n -= run.live_count
            if not n:
                return run.last
            continue
        start = max(topic.floor - run.base, 0)
        if run.dead_count:
            topic.load_marks(run)
        if run.dead is None:
            return run.base + start + n - 1
        alive = np.flatnonzero(np.frombuffer(run.dead, np.uint8)[start:] == 0)
        return run.base + start + int(alive[n - 1])
    return topic.head


@surviving_damage
def _bytes_prefix(topic: Topic, cap_bytes: int) -> int:
    """Return the seq up to which live records must go so that the others fit into `cap_bytes`."""
    excess = topic.live_bytes - cap_bytes
    if excess <= 0:
        return topic.floor - 1  # a damaged run has gone, and its records with it
    for run in topic.runs:
        if run.live_bytes < excess:
            excess -= run.live_bytes
            continue
        return run.base + _index_freeing(topic, run, excess)
    return topic.head


def _index_freeing(topic: Topic, run: Run, excess: int) -> int:
    start = max(topic.floor - run.base, 0)
    hot = run.hot
    if hot is not None and run.dead is None:
        # One record or a few, as a rule: look near before looking far.
        count = 1
        while start + count < run.count and hot.size_between(start, start + count) < excess:
            count *= 8
        near = range(start, min(start + count, run.count))
        return start + bisect_left(near, excess, key=lambda index: hot.size_between(start, index + 1))
    columns = topic.store.columns(run)
    freed = np.cumsum(run.live_sizes(columns, start, run.count))
    return start + int(np.searchsorted(freed, excess))


# --- from the front ---------------------------------------------------------------------------------------


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


@surviving_damage
def settle_floor(topic: Topic) -> None:
    """Let the floor rise to the first live seq; what it passes on the way was deleted before."""
    topic.changed.add(topic.id)
    position = topic.floor
    first = topic.runs[0] if topic.runs else None
    if not topic.live_count:
        floor = topic.head + 1
    elif first is not None and not first.dead_count and 0 <= position - first.base < first.count:
        floor = position  # nothing of this run was deleted
    else:
        floor = topic.first_live(position)
    while topic.runs and topic.runs[0].base < floor:
        run = topic.runs[0]
        start = max(position - run.base, 0)
        stop = min(run.count, floor - run.base)
        if start < stop:
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
            topic.store.release(run)
    return count


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
        topic.totals.found_damage()
    settle_floor(topic)

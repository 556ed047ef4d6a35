"""Why each missing seq of a topic is missing: the account for those who have to reconcile, or to draw it.

Below the floor the ledger has it, deletions above the floor are marked in their runs, and holes are where
nothing is. A hole was noted when it was found, whatever has passed over it since.

Marks of sealed runs may have to be read from their files. So that nobody waits for a thousand of them, both
accounts are generators that pause after each; `exact` drives one to its end.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from topics.log.remove import ledger
from topics.log.remove.removal import surviving_damage
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import I64, SegmentDamaged

Range = tuple[int, int, int]
# None: a good moment to let others have their turn.
Told = Iterator[Range | None]
Result = TypeVar("Result")
Steps = Generator[None, None, Result]
# A topic that loses records faster than that is counted in one go.
_ATTEMPTS = 3


def missing_ranges(topic: Topic) -> list[Range]:
    """First seq, last seq and kind of every stretch that cannot be read any more: ascending and merged."""
    return at_once(range_steps(topic, topic.seq_base - 1, topic.head))


def range_steps(topic: Topic, after: int, limit: int) -> Steps[list[Range]]:
    """Those above `after`, so many at most."""
    found = ledger.Ledger()
    told = _around(_told(topic, after), [h for h in hole_ranges(topic) if h[1] > after], after)
    for item in told:
        if item is None:
            yield
        else:
            found.add(*item)
            # One more than was asked for may still have been growing.
            if len(found.kinds) > limit:
                break
    return list(islice(found.ranges(), limit))


def at_once(steps: Steps[Result]) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def exact(topic: Topic, make: Callable[[], Steps[Result]]) -> Steps[Result]:
    """The result of steps between which nothing has left the topic; damage that they meet is announced."""
    for _ in range(_ATTEMPTS):
        gone = _gone(topic)
        steps = make()
        try:
            while _gone(topic) == gone:
                next(steps)
                yield
        except StopIteration as end:
            result: Result = end.value
            return result
        except SegmentDamaged:
            break
    return surviving_damage(topic, lambda: at_once(make()))


def exactly(topic: Topic, make: Callable[[], Steps[Result]]) -> Result:
    """The same in one go."""
    return at_once(exact(topic, make))


def _gone(topic: Topic) -> tuple[int, int]:
    """How many seqs are missing: a number that only grows, and in which life of the name."""
    return topic.id, topic.head - topic.live_count


def why_missing(topic: Topic, seq: int) -> int:
    """The kind of one seq, which was given out and cannot be read."""
    for first, last, kind in hole_ranges(topic):
        if first <= seq <= last:
            return kind
    kind_below = topic.ledger.kind_of(seq)
    return ledger.DELETED if kind_below is None else kind_below


def hole_ranges(topic: Topic) -> list[Range]:
    return [(hole.first, hole.last, hole.kind) for hole in topic.holes]


def _told(topic: Topic, after: int) -> Told:
    """What ledger and runs say of the seqs above `after`; the first range may begin below it."""
    account = topic.ledger
    for at in range(bisect_right(account.lasts, after), len(account.lasts)):
        yield account.firsts[at], account.lasts[at], account.kinds[at]
    first = max(after + 1, topic.floor)
    for run in topic.runs[max(bisect_right(topic.runs.bases, first) - 1, 0) :]:
        was_loaded = run.dead is not None or not run.dead_count
        firsts, lasts = deleted_in(topic, run, first)
        yield from zip(firsts.tolist(), lasts.tolist(), [ledger.DELETED] * len(firsts), strict=True)
        if not was_loaded:
            yield None


def deleted_in(topic: Topic, run: Run, above: int) -> tuple[I64, I64]:
    """Deleted stretches of a run from a seq on, above the floor and up to the visible head."""
    first, last = max(run.base, topic.floor, above), min(run.last, topic.head)
    if last < first or (run.live_count and not run.dead_count):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if not run.live_count:
        return np.array([first]), np.array([last])
    topic.load_marks(run)
    assert run.dead is not None
    marks = np.frombuffer(run.dead, np.uint8)[first - run.base : last - run.base + 1]
    edges = np.flatnonzero(np.diff(marks, prepend=0, append=0))
    return edges[0::2] + first, edges[1::2] + (first - 1)


def _around(told: Iterable[Range | None], holes: list[Range], after: int) -> Told:
    """Both in order; where they overlap, the hole counts. Ranges may be empty, which a ledger passes over."""
    at, passed = 0, after
    for item in told:
        if item is None:
            yield None
            continue
        first, last, kind = item
        while at < len(holes) and holes[at][0] <= last:
            begin, end, why = holes[at]
            yield max(first, passed + 1), begin - 1, kind
            yield max(begin, after + 1), end, why
            passed, at = end, at + 1
        yield max(first, passed + 1), last, kind
    for begin, end, why in holes[at:]:
        yield max(begin, after + 1), end, why


def cut_out(ranges: tuple[I64, I64, I64], holes: list[Range]) -> tuple[I64, I64, I64]:
    """The same for many ranges at once, as columns."""
    firsts, lasts, kinds = ranges
    parts: list[tuple[I64, I64, I64]] = []
    begin, left = 0, np.iinfo(np.int64).min
    for first, last, kind in [*holes, (np.iinfo(np.int64).max, 0, 0)]:
        end = int(np.searchsorted(firsts, first))
        piece = np.maximum(firsts[begin:end], left), np.minimum(lasts[begin:end], first - 1)
        is_left = piece[0] <= piece[1]
        parts.append((piece[0][is_left], piece[1][is_left], kinds[begin:end][is_left]))
        if last >= first:
            parts.append((np.array([first]), np.array([last]), np.array([kind])))
            begin, left = int(np.searchsorted(lasts, last + 1)), last + 1
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return columns[0], columns[1], columns[2]

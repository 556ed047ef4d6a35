"""Why each missing seq of a topic is missing: the account for those who have to reconcile, or to draw it.

Below the floor the ledger has it, deletions above the floor are marked in their runs, and holes are where
nothing is. A hole was noted when it was found, whatever has passed over it since.

Marks of sealed runs may have to be read from their files. So that nobody waits for a thousand of them, both
accounts are generators that pause after each; `exact` drives one to its end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from topics.core import MAX_SEQ
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


@surviving_damage
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
    return surviving_damage(lambda _: at_once(make()))(topic)


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
    yield from topic.ledger.ranges_above(after)
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


MAX_BUCKETS = 2000
# A few milliseconds' worth: others have their turn in between.
_RANGES_A_STEP = 65_536


@dataclass(slots=True)
class Bucket:
    first: int
    last: int
    # By kind, as in the ledger.
    missing: list[int]

    @property
    def live(self) -> int:
        return self.last - self.first + 1 - sum(self.missing)


def bucket_steps(topic: Topic, count: int, from_seq: int = 0, to_seq: int = MAX_SEQ) -> Steps[list[Bucket]]:
    """Divide a topic into stretches of about the same length: what of each is live, and why the rest is not.

    There are `count` of them, or one for each seq if there are fewer seqs. The cost follows the number of
    ranges, not of records: a run within one stretch is counted by what is known of it, and the marks of a run
    are looked at only if a stretch ends inside.
    """
    base, head = max(topic.seq_base, from_seq), min(topic.head, to_seq)
    total = head - base + 1
    count = min(count, total)
    if count <= 0:
        return []
    # One more than there are buckets: where each begins, and the last one ends.
    bounds = [base + total * number // count for number in range(count + 1)]
    holes = hole_ranges(topic)
    edges = np.array(bounds)
    parts = [_ledger_ranges(topic)]
    missing = np.zeros((len(ledger.KIND_NAMES), count), np.int64)
    for run in topic.runs:
        first, last = max(run.base, topic.floor, base), min(run.last, head)
        if last < first:
            continue
        number = bisect_right(bounds, first) - 1
        is_whole = first == run.base and last == run.last
        if is_whole and last < bounds[number + 1] and not _meets(holes, first, last):
            missing[ledger.DELETED][number] += run.dead_count if run.live_count else run.count
            continue
        firsts, lasts = deleted_in(topic, run, first)
        part = firsts, lasts, np.full(len(firsts), ledger.DELETED)
        if holes:
            parts.append(part)  # they are cut out of all parts together
        else:
            behind = bisect_right(bounds, last)
            _add(missing[:, number:behind], part, edges[number : behind + 1])
        yield
    if holes:
        firsts, lasts, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
        parts = [cut_out((firsts, lasts, kinds), holes)]
    for firsts, lasts, kinds in parts:
        for at in range(0, len(firsts), _RANGES_A_STEP):
            stop = at + _RANGES_A_STEP
            _add(missing, (firsts[at:stop], lasts[at:stop], kinds[at:stop]), edges)
            yield
    return [
        Bucket(bounds[number], bounds[number + 1] - 1, missing[:, number].tolist()) for number in range(count)
    ]


@surviving_damage
def whole(topic: Topic) -> list[Bucket]:
    """The same in one stretch and at once: what became of all that was ever written. None of an empty one."""
    return at_once(bucket_steps(topic, 1))


def _add(missing: I64, ranges: tuple[I64, I64, I64], edges: I64) -> None:
    """Count these ranges, which are in order, in the buckets between these edges."""
    for kind in np.unique(ranges[2]).tolist():
        chosen = ranges[2] == kind
        missing[kind] += np.diff(_covered(ranges[0][chosen], ranges[1][chosen], edges))


def _ledger_ranges(topic: Topic) -> tuple[I64, I64, I64]:
    account = topic.ledger
    # Copies: as long as its memory is lent out, an array cannot grow.
    return np.array(account.firsts), np.array(account.lasts), np.array(account.kinds, np.int64)


def _meets(holes: list[Range], first: int, last: int) -> bool:
    at = bisect_left(holes, first, key=lambda hole: hole[1])
    return at < len(holes) and holes[at][0] <= last


def _covered(firsts: I64, lasts: I64, edges: I64) -> I64:
    """How many seqs in front of each edge lie in a range. There are some; in order, they do not overlap."""
    sums = np.concatenate(([0], np.cumsum(lasts - firsts + 1)))
    begun = np.searchsorted(firsts, edges)
    beyond = np.where(begun > 0, lasts[np.maximum(begun, 1) - 1] - edges + 1, 0)
    return sums[begun] - np.maximum(beyond, 0)

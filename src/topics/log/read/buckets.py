"""A topic from its first seq to its head in a few stretches: what of each is live, and why the rest is not.

What it costs follows the number of ranges, not of records: a run that lies within one stretch is counted by
what is known of it, and only where a stretch ends inside a run are its marks looked at.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from topics.core import MAX_SEQ
from topics.log.read.audit import Range, Steps, at_once, cut_out, deleted_in, hole_ranges
from topics.log.remove import ledger
from topics.log.remove.removal import surviving_damage
from topics.log.topic import Topic
from topics.storage import I64

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
    """So many stretches of about the same length, or one for each seq if there are fewer."""
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


def whole(topic: Topic) -> list[Bucket]:
    """The same in one stretch and at once: what became of all that was ever written. None of an empty one."""
    return surviving_damage(topic, lambda: at_once(bucket_steps(topic, 1)))


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

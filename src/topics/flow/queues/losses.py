"""Jobs that a queue lost before a worker finished them, and which of these losses workers know of.

The topic's ledger and holes have the records that a cap, age or a restart removed. A hole covers whole
ranges, also jobs that were finished before. They are not losses, and are remembered here.

A loss is offered to one worker. When that worker has its reply, the loss counts as told, and the journal says
so. If the reply fails, or the process dies first, the next worker is told.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from topics.core import MAX_SEQ
from topics.log import CAP, DELETED, LOST, TRIM, TTL, Tombstone, Topic

Range: TypeAlias = tuple[int, int]
# First seq, last seq, and a number: for lost ranges, their kind in the ledger.
_Stretch: TypeAlias = tuple[int, int, int]


class LossState(msgspec.Struct, array_like=True, gc=False):
    """The state of a queue's losses in the journal and in snapshots."""

    topic: int
    told: int
    told_holes: list[Range]
    settled: int
    finished: list[Range]
    # Ranges, and how many jobs of each were finished; which of them is not known.
    partly_finished: list[_Stretch]


class SeqRanges:
    """A set of seqs, kept as ascending and merged ranges."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Neighbours become one; an empty range adds nothing."""
        if last < first:
            return
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def __contains__(self, seq: int) -> bool:
        at = bisect_left(self._lasts, seq)
        return at < len(self._firsts) and self._firsts[at] <= seq

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def inside(self, first: int, last: int) -> Iterator[Range]:
        """Yield the ranges of the set between these two seqs."""
        for at in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            yield max(first, self._firsts[at]), min(last, self._lasts[at])

    def outside(self, first: int, last: int) -> Iterator[Range]:
        """Yield the ranges between these two seqs that are not in the set."""
        for known_first, known_last in self.inside(first, last):
            if known_first > first:
                yield first, known_first - 1
            first = known_last + 1
        if first <= last:
            yield first, last


@dataclass(slots=True, frozen=True)
class Notice:
    """The losses that one worker is about to be told of."""

    tombstone: Tombstone
    told: int
    told_holes: tuple[Range, ...]

    def json(self) -> bytes:
        return msgspec.json.encode(self.tombstone)


class Losses:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        # Workers know of every loss up to this seq, and of these above it, which are holes inside the log.
        self._told = topic.seq_base - 1
        self._told_holes = SeqRanges()
        # The same, with the losses offered to a worker that has no reply yet.
        self._offered = self._told
        self._offered_holes = SeqRanges()
        # Losses up to this seq happened before the last start: a deletion since then came too late.
        self._settled = topic.seq_base - 1
        # Finished jobs in holes, and holes of which only the number of finished jobs is known.
        self._finished = SeqRanges()
        self._partially_finished: list[_Stretch] = []
        # Records were removed since the last scan for losses.
        self.needs_rescan = True

    # --- what is lost -----------------------------------------------------------------------------------

    def note_finished(self, first: int, last: int, count: int) -> None:
        """Note that `count` of these jobs, whose records are lost, were finished or deleted before."""
        first = max(first, self._settled + 1)
        if count >= last - first + 1:
            self._finished.add(first, last)
        elif count:
            self._partially_finished.append((first, last, count))

    def is_lost(self, seq: int) -> bool:
        """Whether a cap, age or a restart removed this job."""
        topic = self._topic
        for hole in topic.holes:
            if hole.first <= seq <= hole.last:
                return hole.kind == LOST and seq not in self._finished
        return seq < topic.floor and topic.ledger.kind_of(seq) in (CAP, TTL, LOST)

    def _untold(self) -> Iterator[_Stretch]:
        topic = self._topic
        for hole in topic.holes:
            for first, last in self._offered_holes.outside(max(hole.first, self._offered + 1), hole.last):
                for piece in self._finished.outside(first, last):
                    yield *piece, hole.kind
        holes = SeqRanges((hole.first, hole.last) for hole in topic.holes)
        for first, last, kind in topic.ledger.ranges_above(self._offered):
            if kind != DELETED:
                for piece in holes.outside(max(first, self._offered + 1), last):
                    yield *piece, kind

    # --- telling ----------------------------------------------------------------------------------------

    def offer(self) -> Notice | None:
        """Return the losses that no worker was told of, for one worker; None if there are none."""
        self.needs_rescan = False
        topic = self._topic
        untold = list(self._untold())
        # Below the floor nothing more can be lost; holes above it are kept one by one.
        self._offered = max(self._offered, topic.floor - 1)
        holes = [(hole.first, hole.last) for hole in topic.holes if hole.last > self._offered]
        self._offered_holes = SeqRanges(holes)
        if not untold:
            return None
        first, last = min(first for first, _, _ in untold), max(last for _, last, _ in untold)
        count = sum(last - first + 1 - self._uncounted(first, last) for first, last, _ in untold)
        reason = _reason({kind for _, _, kind in untold})
        gap = Tombstone(first, last, reason, count, topic.floor, topic.head)
        return Notice(gap, self._offered, tuple(holes))

    def _uncounted(self, first: int, last: int) -> int:
        """Return how many jobs of a range were finished, although it is not known which."""
        return sum(count for begin, end, count in self._partially_finished if first <= begin and end <= last)

    def confirm(self, notice: Notice) -> None:
        """Note that the worker was told."""
        self._told = max(self._told, notice.told)
        ranges = [*self._told_holes, *notice.told_holes]
        self._told_holes = SeqRanges((first, last) for first, last in ranges if last > self._told)

    def withdraw(self) -> None:
        """Offer the losses to the next worker: this one could not be told."""
        self._offered = self._told
        self._offered_holes = SeqRanges(self._told_holes)
        self.needs_rescan = True

    # --- restarts ---------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Treat losses up to the head as final, after recovery. Return True if the journal has to know."""
        topic = self._topic
        finished = [piece for hole in topic.holes for piece in self._finished.inside(hole.first, hole.last)]
        self._finished = SeqRanges(finished)
        has_new = any(hole.last > self._settled for hole in topic.holes)
        if has_new:
            self._settled = topic.head
        return has_new

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to keep."""
        is_told = self._told >= self._topic.seq_base or any(self._told_holes)
        return not (is_told or any(self._finished) or self._partially_finished)

    def dump(self) -> LossState:
        # A restore may have taken back seqs that workers were told of; they are assigned again.
        head = self._topic.head
        told_holes = [(first, min(last, head)) for first, last in self._told_holes if first <= head]
        told, settled = min(self._told, head), min(self._settled, head)
        return LossState(
            self._topic.id, told, told_holes, settled, list(self._finished), self._partially_finished
        )

    def load(self, state: LossState) -> None:
        """Load the state of a snapshot or a frame. Deletions that were read before may be in new holes."""
        self._told, self._told_holes = state.told, SeqRanges(state.told_holes)
        self._settled = settled = state.settled
        self._finished = SeqRanges([*state.finished, *self._finished.inside(settled + 1, MAX_SEQ)])
        self._partially_finished = [
            *state.partly_finished,
            *(one for one in self._partially_finished if one[0] > settled),
        ]
        self.withdraw()


def _reason(kinds: set[int]) -> str:
    """Return the reason as readers get it: a loss by a restart looks like one by a cap."""
    if TTL in kinds:
        return "mixed" if kinds & {CAP, LOST} else "ttl"
    return "source_trim" if kinds == {TRIM} else "cap"

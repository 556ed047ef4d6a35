"""Jobs that a queue lost before any worker had finished them, and which of these losses workers know of.

What a cap, age or a restart took is in the topic's ledger and its holes. A hole takes whole stretches, also
jobs that had been finished before: those are remembered here, because they are no loss.

A loss is offered to one worker. When that worker has its answer the loss counts as told, and the journal is
told so; if the answer came to nothing, or the process dies first, the next worker hears of it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from topics.log import CAP, DELETED, LOST, TRIM, TTL, Tombstone, Topic
from topics.values import MAX_SEQ

Range: TypeAlias = tuple[int, int]
# First seq, last seq, and a number: of lost stretches, their kind in the ledger.
_Stretch: TypeAlias = tuple[int, int, int]


class LossState(msgspec.Struct, array_like=True, gc=False):
    """What the journal and snapshots keep of a queue."""

    topic: int
    told: int
    told_holes: list[Range]
    settled: int
    finished: list[Range]
    # Stretches, and how many of each had been finished: which ones is not known.
    partly_finished: list[_Stretch]


class SeqRanges:
    """A set of seqs that lie together for the most part: kept as stretches, ascending and merged."""

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
        """What of the set lies between these two seqs."""
        for at in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            yield max(first, self._firsts[at]), min(last, self._lasts[at])

    def outside(self, first: int, last: int) -> Iterator[Range]:
        """What between these two seqs is not of the set."""
        for known_first, known_last in self.inside(first, last):
            if known_first > first:
                yield first, known_first - 1
            first = known_last + 1
        if first <= last:
            yield first, last


@dataclass(slots=True, frozen=True)
class Notice:
    """What one worker is about to be told."""

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
        # The same with what is offered to a worker that has no answer yet.
        self._offered = self._told
        self._offered_holes = SeqRanges()
        # What was lost up to this seq was lost before the last start: a deletion since then came too late.
        self._settled = topic.seq_base - 1
        # Jobs in holes that had been finished, and holes of which only their number is known.
        self._finished = SeqRanges()
        self._partially_finished: list[_Stretch] = []
        # Records have gone since the losses were last looked at.
        self.needs_rescan = True

    # --- what is lost -----------------------------------------------------------------------------------

    def note_finished(self, first: int, last: int, count: int) -> None:
        """Of these jobs, whose records are lost, so many had been finished or deleted before."""
        first = max(first, self._settled + 1)
        if count >= last - first + 1:
            self._finished.add(first, last)
        elif count:
            self._partially_finished.append((first, last, count))

    def is_lost(self, seq: int) -> bool:
        """Whether a cap, age or a restart has taken this job."""
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
        """The losses that no worker has been told of, for one worker to be told; None if there are none."""
        self.needs_rescan = False
        topic = self._topic
        untold = list(self._untold())
        # Below the floor nothing more can be lost, and holes above it are told of one by one.
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
        """How many in a stretch were finished, though it is not known which."""
        return sum(count for begin, end, count in self._partially_finished if first <= begin and end <= last)

    def confirm(self, notice: Notice) -> None:
        """The worker has been told."""
        self._told = max(self._told, notice.told)
        ranges = [*self._told_holes, *notice.told_holes]
        self._told_holes = SeqRanges((first, last) for first, last in ranges if last > self._told)

    def withdraw(self) -> None:
        """A worker could not be told: the next one hears of it, and perhaps of more than it would have to."""
        self._offered = self._told
        self._offered_holes = SeqRanges(self._told_holes)
        self.needs_rescan = True

    # --- restarts ---------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """All was read: what is lost now stays so. True if the journal has to know."""
        topic = self._topic
        finished = [piece for hole in topic.holes for piece in self._finished.inside(hole.first, hole.last)]
        self._finished = SeqRanges(finished)
        has_new = any(hole.last > self._settled for hole in topic.holes)
        if has_new:
            self._settled = topic.head
        return has_new

    @property
    def is_plain(self) -> bool:
        """There is nothing to keep."""
        is_told = self._told >= self._topic.seq_base or any(self._told_holes)
        return not (is_told or any(self._finished) or self._partially_finished)

    def dump(self) -> LossState:
        # A restore may have taken back seqs that had been told of; they will be given out again.
        head = self._topic.head
        told_holes = [(first, min(last, head)) for first, last in self._told_holes if first <= head]
        told, settled = min(self._told, head), min(self._settled, head)
        return LossState(
            self._topic.id, told, told_holes, settled, list(self._finished), self._partially_finished
        )

    def load(self, state: LossState) -> None:
        """As a snapshot or a frame has it. Deletions that were read before it may be of jobs in new holes."""
        self._told, self._told_holes = state.told, SeqRanges(state.told_holes)
        self._settled = settled = state.settled
        self._finished = SeqRanges([*state.finished, *self._finished.inside(settled + 1, MAX_SEQ)])
        self._partially_finished = [
            *state.partly_finished,
            *(one for one in self._partially_finished if one[0] > settled),
        ]
        self.withdraw()


def _reason(kinds: set[int]) -> str:
    """As readers are told: a restart's loss looks like that of a cap."""
    if TTL in kinds:
        return "mixed" if kinds & {CAP, LOST} else "ttl"
    return "source_trim" if kinds == {TRIM} else "cap"

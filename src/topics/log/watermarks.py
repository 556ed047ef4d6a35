"""The watermarks of one topic: which seqs were promised, given out, shown, taken away, and how.

Two heads: `assigned` is the last seq given out, `head` the last one committed and so visible. Two floors:
`floor` is the lowest live seq, `loss_line` one past the highest seq the server itself took from readers.
Holes are seqs that were promised and are gone, at the front of the log or inside it.
"""

from bisect import bisect_right, insort
from dataclasses import dataclass, field, replace
from itertools import islice

from topics.core import InvariantViolated
from topics.log.remove import ledger
from topics.log.remove.ledger import GoneTimes, Ledger

# How many seqs are reserved at first, and at most in one step. Steps double with use.
FIRST_STEP = 256
LARGEST_STEP = 1 << 20
# Beyond so many, those in front of everything that can be read are told as one.
MAX_HOLES = 100_000


@dataclass(slots=True)
class Hole:
    """Seqs that were promised and are gone. `interior` ones interrupt a read on their own."""

    first: int
    last: int
    kind: int
    interior: bool
    # Of one that a router brought: how many routers it has come through.
    hops: int = 1

    def capture(self) -> tuple[int, ...]:
        usual = (self.first, self.last, self.kind, self.interior)
        return usual if self.hops == 1 else (*usual, self.hops)


@dataclass(slots=True, eq=False, repr=False)
class Watermarks:
    id: int
    seq_base: int
    # Ids of topics that are not any more what their last captured state says.
    changed: set[int]
    head: int = 0
    assigned: int = 0
    floor: int = 0
    # Timestamp of the record at the floor: lets an unexpired topic answer in one comparison.
    floor_ts: int = 0
    # Timestamp of the last seq given out; they never fall.
    last_ts: int = 0
    # The highest seqs that readers lost to a cap, to age, to a loss in a router's source, to damage.
    cap_hi: int = 0
    ttl_hi: int = 0
    trim_hi: int = 0
    lost_hi: int = 0
    # Age has taken ephemeral records, and the journal does not say so: replay will not find them.
    ttl_unnoted: bool = False
    delete_below: int = 0
    holes: list[Hole] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    # Once something has gone.
    gone_times: GoneTimes | None = None
    # No seq above it is acknowledged, and none up to it is ever given out by another process again.
    reserved: int = 0
    # The end of the reservation that is on its way to disk; never below `reserved`.
    reserve_asked: int = 0
    reserving: int = FIRST_STEP

    def __post_init__(self) -> None:
        self.floor = self.seq_base
        self.head = self.assigned = self.reserved = self.reserve_asked = self.seq_base - 1
        self.note_change()

    def note_change(self) -> None:
        """Something that belongs into a snapshot is not any more what it was."""
        self.changed.add(self.id)

    # --- what is promised -------------------------------------------------------------------------------

    def ask_reservation(self, from_seq: int, at_least: int = 0) -> int:
        """A reservation of more seqs above `from_seq` is about to be journalled; returns its end.

        `at_least`: the size of the write that asks. Steps start from there: bulk writers would otherwise wait
        for a dozen of them.
        """
        self.reserving = min(2 * max(self.reserving, at_least), LARGEST_STEP)
        self.reserve_asked = from_seq + self.reserving
        return self.reserve_asked

    def reserve(self, upto: int) -> None:
        """The journal has a reservation up to here."""
        self.reserved = max(self.reserved, upto)
        self.reserve_asked = max(self.reserve_asked, self.reserved)
        self.note_change()

    def withdraw_reservation(self) -> None:
        """The frame that asked for it will not be journalled: it has to be asked for again."""
        self.reserve_asked = self.reserved

    def skip_to(self, seq: int, ts: int = 0) -> None:
        """Seqs up to here are given out, and no record will have them."""
        self.assigned = max(self.assigned, seq)
        self.last_ts = max(self.last_ts, ts)

    # --- what is lost -----------------------------------------------------------------------------------

    @property
    def loss_line(self) -> int:
        line = max(self.cap_hi, self.ttl_hi, self.trim_hi, self.lost_hi) + 1
        return min(max(line, self.seq_base), self.head + 1)

    def raise_line(self, kind: int, seq: int, *, unnoted: bool = False) -> None:
        """Readers have lost records up to here. `unnoted`: replay will not find that out by itself."""
        if kind == ledger.CAP:
            self.cap_hi = max(self.cap_hi, seq)
        elif kind == ledger.TTL:
            self.ttl_hi = max(self.ttl_hi, seq)
            self.ttl_unnoted |= unnoted
        elif kind == ledger.TRIM:
            self.trim_hi = max(self.trim_hi, seq)
        else:
            self.lost_hi = max(self.lost_hi, seq)
        self.changed.add(self.id)
        if self.holes and kind in (ledger.CAP, ledger.TTL):
            self._absorb_holes(max(self.cap_hi, self.ttl_hi))

    def _absorb_holes(self, passed: int) -> None:
        """A cap or TTL loss that passed a hole makes it part of the front gap."""
        at = bisect_right(self.holes, passed, key=lambda hole: hole.last)
        # From above: those below one that is part of the front gap are in front of everything already.
        while at and self.holes[at - 1].interior:
            at -= 1
            hole = self.holes[at]
            hole.interior = False
            self.raise_line(hole.kind, hole.last)

    def check_marks(self) -> None:
        """Raise if the marks contradict each other; for callers that have moved several of them."""
        if not self.loss_line <= self.floor <= self.head + 1 <= self.assigned + 1:
            raise InvariantViolated(
                f"topic {self.id}: evict_floor {self.loss_line}, earliest_seq {self.floor}, "
                f"head {self.head}, assigned {self.assigned}"
            )

    def lines_noted(self) -> None:
        """The journal has the lines as they are."""
        self.ttl_unnoted = False

    def raise_floor(self, seq: int, ts: int | None = None) -> None:
        """Nothing below is live any more; `ts`: the time of the record there, if it is known."""
        self.floor = max(self.floor, seq)
        if ts is not None:
            self.floor_ts = ts

    def raise_delete_line(self, seq: int) -> None:
        """Everything below has been deleted."""
        self.delete_below = max(self.delete_below, seq)
        self.note_change()

    def note_gone(self, first: int, last: int, after_ms: int, by_ms: int) -> None:
        """Some or all of these seqs went between the two times, the first of them 0 if it is not known."""
        if first <= last:
            if self.gone_times is None:
                self.gone_times = GoneTimes()
            self.gone_times.note(first, last, after_ms, by_ms)

    def note_hole(
        self,
        first: int,
        last: int,
        kind: int,
        *,
        interior: bool,
        hops: int = 1,
        found_ms: int | None = None,
    ) -> None:
        """`found_ms`: when they were found to be missing, if it is not noted elsewhere when they went."""
        self.note_change()
        if found_ms is not None:
            self.note_gone(first, last, 0, found_ms)
        if not interior:
            self.raise_line(kind, last)
        if self.holes:
            top = self.holes[-1]
            alike = (top.kind, top.interior, top.hops) == (kind, interior, hops)
            if alike and top.last + 1 == first:
                top.last = last
                return
        insort(self.holes, Hole(first, last, kind, interior, hops), key=lambda hole: hole.first)
        if len(self.holes) > MAX_HOLES and not self.holes[1].interior:
            # Both are in front of all that can be read, and so is what lies between.
            lowest, second = self.holes[:2]
            self.holes[:2] = [replace(second, first=lowest.first, kind=max(lowest.kind, second.kind))]

    def hole_after(self, seq: int) -> Hole | None:
        """The first interior hole that reaches above `seq`."""
        start = bisect_right(self.holes, seq, key=lambda hole: hole.last)
        return next((hole for hole in islice(self.holes, start, None) if hole.interior), None)

    # --- for restoring ----------------------------------------------------------------------------------

    def rewind(self, head: int) -> None:
        """Nothing above `head` was ever given out."""
        self.head = self.assigned = self.reserved = self.reserve_asked = head
        self.floor = min(self.floor, head + 1)
        self.cap_hi, self.ttl_hi = min(self.cap_hi, head), min(self.ttl_hi, head)
        self.trim_hi, self.lost_hi = min(self.trim_hi, head), min(self.lost_hi, head)
        self.delete_below = min(self.delete_below, head + 1)
        self.holes = [replace(hole, last=min(hole.last, head)) for hole in self.holes if hole.first <= head]
        account = Ledger()
        for first, last, kind in self.ledger.ranges():
            account.add(first, min(last, head), kind)
        self.ledger = account
        if self.gone_times is not None:
            self.gone_times.cut(head)
        self.note_change()

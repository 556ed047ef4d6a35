"""Copies arrive: put behind the destination's head, visible once their step is committed.

The same code runs when a step is made and when recovery reads it back.
"""

from dataclasses import dataclass

from topics.flow.routers.definitions import Router
from topics.flow.routers.frames import COPIES, GONE, HOLE_INSIDE, Share
from topics.log import Engine, Op, Topic, enforce_caps, expire
from topics.log.remove import ledger
from topics.values import ApiError


@dataclass(slots=True)
class Arrival:
    """A share whose copies are staged: what has to happen in the destination when it is committed."""

    router: Router | None
    dest: Topic
    share: Share
    # When the step was made. The time of the copies may be later: it never falls in a topic.
    clock_ms: int
    # Bytes of the copies in each piece.
    sizes: list[int]
    reserve_to: int = 0
    # Where the router stood before.
    sent_before: int = 0

    def apply(self, engine: Engine) -> None:
        """Live and in recovery alike: staged copies become visible, holes open, retention follows."""
        dest, share = self.dest, self.share
        if self.router is not None:
            self.router.cursor = share.cursor
            self.router.forwarded += share.forwarded
        if not share.pieces:
            return
        if self.reserve_to:
            dest.reserve(self.reserve_to)
        expire(dest, self.clock_ms)
        for piece, size in zip(share.pieces, self.sizes, strict=True):
            if piece.kind == COPIES:
                dest.publish(piece.count, size, share.ts)
            elif piece.kind == GONE:
                dest.add_hole(piece.first_dest, piece.last_dest, ledger.LOST, found_ms=share.ts)
            else:
                inside = piece.kind == HOLE_INSIDE
                first, last = piece.first_dest, piece.last_dest
                dest.add_hole(first, last, ledger.TRIM, interior=inside, hops=piece.hops, found_ms=share.ts)
        cap_hi = dest.cap_hi
        enforce_caps(dest)
        if dest.mixed and dest.cap_hi != cap_hi and engine.recovered:
            engine.note_lines(dest)

    def withdraw(self) -> None:
        """The step was refused: the router has yet to make it."""
        dest, pieces = self.dest, self.share.pieces
        if pieces:
            copies = sum(piece.count for piece in pieces if piece.kind == COPIES)
            dest.take_back(pieces[0].first_dest - 1, copies, sum(self.sizes))
            dest.withdraw_reservation()
        if self.router is not None:
            self.router.step_back(self.sent_before, dest.assigned)


class RouteOp(Op):
    """A step on its way to disk."""

    __slots__ = ("_engine", "arrivals")

    grows = True

    def __init__(self, engine: Engine, *, sync: bool) -> None:
        super().__init__([], None, sync=sync)
        self._engine = engine
        self.arrivals: list[Arrival] = []

    def apply(self) -> None:
        for arrival in self.arrivals:
            arrival.apply(self._engine)
        for arrival in self.arrivals:
            if arrival.dest.listeners and arrival.share.pieces:
                arrival.dest.wake()

    def fail(self, error: ApiError) -> None:
        return None  # no client waits for it; the records are forwarded again later, or after a restart

    def withdraw(self) -> None:
        for arrival in reversed(self.arrivals):
            arrival.withdraw()

"""Copies that are staged after the destination's head, and become visible when their step is committed.

A live step and recovery run this code alike.
"""

from dataclasses import dataclass

from topics.core import ApiError
from topics.flow.routers.definitions import Router
from topics.flow.routers.frames import COPIES, GONE, HOLE_INSIDE, CopyPlan
from topics.log import Engine, Op, Topic, enforce_caps, expire
from topics.log.remove import ledger


@dataclass(slots=True)
class PendingCopies:
    """The staged copies of one router, and what happens in the destination at the commit."""

    router: Router | None
    dest: Topic
    plan: CopyPlan
    # When the step was made. The copies may have a later time: times never fall in a topic.
    clock_ms: int
    # Bytes of the copies in each piece.
    sizes: list[int]
    reserve_to: int = 0
    # The position of the router before the step.
    sent_before: int = 0

    def apply(self, engine: Engine) -> None:
        """Make staged copies visible, open holes, and apply retention."""
        dest, plan = self.dest, self.plan
        if self.router is not None:
            self.router.cursor = plan.cursor
            self.router.forwarded += plan.forwarded
        if not plan.pieces:
            return
        if self.reserve_to:
            dest.reserve(self.reserve_to)
        expire(dest, self.clock_ms)
        for piece, size in zip(plan.pieces, self.sizes, strict=True):
            if piece.kind == COPIES:
                dest.publish(piece.count, size, plan.ts)
            elif piece.kind == GONE:
                dest.add_hole(piece.first_dest, piece.last_dest, ledger.LOST, found_ms=plan.ts)
            else:
                inside = piece.kind == HOLE_INSIDE
                first, last = piece.first_dest, piece.last_dest
                dest.add_hole(first, last, ledger.TRIM, interior=inside, hops=piece.hops, found_ms=plan.ts)
        cap_hi = dest.cap_hi
        enforce_caps(dest)
        if dest.mixed and dest.cap_hi != cap_hi and engine.recovered:
            engine.note_lines(dest)

    def withdraw(self) -> None:
        """Take the copies back: the step was refused, and the router has to make it again."""
        dest, pieces = self.dest, self.plan.pieces
        if pieces:
            copies = sum(piece.count for piece in pieces if piece.kind == COPIES)
            dest.take_back(pieces[0].first_dest - 1, copies, sum(self.sizes))
            dest.withdraw_reservation()
        if self.router is not None:
            self.router.step_back(self.sent_before, dest.assigned)


class RouteOp(Op):
    """A step that is being committed."""

    __slots__ = ("_engine", "all_pending")

    grows = True

    def __init__(self, engine: Engine, *, sync: bool) -> None:
        super().__init__([], None, sync=sync)
        self._engine = engine
        self.all_pending: list[PendingCopies] = []

    def apply(self) -> None:
        for pending in self.all_pending:
            pending.apply(self._engine)
        for pending in self.all_pending:
            if pending.dest.listeners and pending.plan.pieces:
                pending.dest.wake()

    def fail(self, error: ApiError) -> None:
        return None  # no client waits for it; the records are forwarded again later, or after a restart

    def withdraw(self) -> None:
        for pending in reversed(self.all_pending):
            pending.withdraw()

"""What becomes of operations that the disk refuses: they fail, and no trace of them is left.

A full disk is a state. What makes the log larger is refused until there is room; what does not, removals
above all, finds room in the reserve. A write that failed otherwise, or a sync, is final: everything that has
not taken effect fails, and the log takes no more writes until it is restarted.

Either way, what was refused is taken out of the journal, on disk, before its writer hears of it. Where that
cannot be made sure, the writer gets no answer: a restart will show what became of it.
"""

import logging
import time
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from topics.core import ApiError, InvariantViolated, OutcomeUnknown, WritesOff
from topics.log.topic import Topic
from topics.log.write.operation import Op
from topics.storage import FrameDraft, Journal, PendingWrite, Reserve, is_full, void_frames

if TYPE_CHECKING:
    from topics.log.write.commit_queue import CommitQueue

log = logging.getLogger("topics.commit")


class GroupWrite:
    """A group of operations on its way to the operating system; `run` may happen on another thread."""

    __slots__ = ("_over", "_write", "error", "has_landed", "ops", "started", "written")

    def __init__(self, ops: list[Op], write: PendingWrite) -> None:
        self.ops = ops
        self._write = write
        self._over = Event()
        self.started = time.perf_counter()
        self.written = 0
        self.error: Exception | None = None
        # The journal has it; its operations may still have to take effect.
        self.has_landed = False

    def run(self) -> None:
        try:
            self.written = self._write.run()
        except Exception as error:
            self.error = error
        finally:
            self._over.set()

    def wait(self) -> None:
        self._over.wait()


class Unfinished(NamedTuple):
    """All operations that have not taken effect, in the order of their seqs within each list."""

    # The journal has them.
    written: list[Op]
    under_way: GroupWrite | None
    # The journal does not have them.
    unwritten: list[Op]


class Refusals:
    """Whether operations are refused, and what becomes of them."""

    def __init__(self, journal: Journal, reserve: Reserve, queue: "CommitQueue") -> None:
        self._journal = journal
        self._reserve = reserve
        self._queue = queue
        # The answer to every operation from now on, or to those that make the log larger; and the reason.
        self.failure: ApiError | None = None
        self.refusal: ApiError | None = None
        self.off: WritesOff | None = None
        # The disk is full, and nothing is left of the reserve.
        self.is_stuck = False

    # --- a full disk ------------------------------------------------------------------------------------

    def rescue(self, error: BaseException, ops: list[Op]) -> list[Op]:
        """Write operations that the journal did not take, with room from the reserve; return those it has.

        The others leave no trace, and fail. One half of the reserve is for operations that were on their way
        when the disk became full. The other half is for operations that do not make the log larger.
        """
        while True:
            if not is_full(error):
                self.latch(error, torn=ops)
                return []
            try:
                self._journal.cut_back()
            except OSError as cause:
                self.latch(cause, torn=ops)
                return []
            self.note_full()
            keep = self._reserve.half if any(op.grows for op in ops) else 0
            size = sum(frame.size for op in ops for frame in op.frames)
            if not self._reserve.give(size, keep=keep):
                ops = self._refuse(ops)
                if not ops:
                    return []
            try:
                # Some may have been left out: the others get new positions, and so new headers.
                self._journal.write(frames_of(ops))
                return ops
            except (OSError, MemoryError) as another:
                error = another

    def _refuse(self, ops: list[Op]) -> list[Op]:
        """Refuse what makes the log larger, and what builds on it; everything if nothing does.

        Return what is left of `ops`.
        """
        error = self.note_full()
        refused: list[Op] = []
        if any(op.grows for op in ops):
            grown: set[Topic] = set()
            ops = without_refused(ops, grown, refused, without_growth=True)
            # Operations that were submitted meanwhile may have seqs behind the ones that are taken back.
            self._queue.take_growth(grown, refused)
        else:
            self.is_stuck = True
            ops, refused = [], ops
        for op in reversed(refused):
            op.withdraw()
        for op in refused:
            op.fail(error)
        return ops

    @property
    def may_forward(self) -> bool:
        """Whether routers may copy: on a full disk, as long as more than half of the reserve is left."""
        if self.refusal is None:
            return True
        return self.failure is None and self._reserve.size > self._reserve.half

    def note_full(self) -> ApiError:
        """Refuse what makes the log larger: there is no room but the reserve. Return the refusal."""
        if self.refusal is None:
            self.off = WritesOff.DISK_FULL
            self.refusal = ApiError("disk_full", "the disk is full; writes return when there is room")
            kept = self._reserve.size
            log.error("the disk is full: appends are refused; %d bytes are kept for removals", kept)
        return self.refusal

    def hold(self) -> None:
        """Refuse everything: there was no room to finish the start."""
        self.failure = self.note_full()

    def let_go(self) -> None:
        """The start is finished."""
        self.failure = None

    def try_again(self) -> None:
        """There may be room now for operations that found none in the reserve."""
        self.is_stuck = False

    def resume(self) -> None:
        """There is room again."""
        if self.failure is None and self.refusal is not None:
            self.refusal = self.off = None
            self._reserve.is_needed = False
            log.warning("there is room on the disk again: writes go on")

    # --- the end ----------------------------------------------------------------------------------------

    def end(self, off: WritesOff, why: str) -> None:
        """Take no more writes, for a reason that the journal did not give."""
        if self.failure is None:
            self._fail_all(off, f"{why}; writes are off until restart")

    def latch(
        self,
        cause: BaseException,
        *,
        refused: Sequence[Op] = (),
        torn: Sequence[Op] = (),
        doubtful: Sequence[Op] = (),
    ) -> None:
        """Take no more writes. There is no retry: after a failed write or sync the disk may hold anything."""
        why = str(cause) or type(cause).__name__
        what = (
            "the log contradicts itself"
            if isinstance(cause, InvariantViolated)
            else "storage refused the commit"
        )
        message = f"{what}: {why}; writes are off until restart"
        if self.failure is None:
            log.error("%s", message)
        self._fail_all(WritesOff.STORAGE_FAILED, message, refused=refused, torn=torn, doubtful=doubtful)

    def _fail_all(
        self,
        off: WritesOff,
        message: str,
        *,
        refused: Sequence[Op] = (),
        torn: Sequence[Op] = (),
        doubtful: Sequence[Op] = (),
    ) -> None:
        """Fail all operations that have not taken effect.

        `refused`: never written. `torn`: perhaps written in part. `doubtful`: in the journal, and not to be
        taken out of it, because some of their effects may have been seen.
        """
        self.failure = self.refusal = ApiError("internal", message)
        # The first final reason is the one that the operator has to remove.
        if self.off in (None, WritesOff.DISK_FULL):
            self.off = off
        landed, under_way, unwritten = self._queue.take_unfinished()
        if under_way is not None:
            under_way.wait()
            if under_way.has_landed:
                landed += under_way.ops
            elif not torn:  # otherwise it is the torn one
                torn = under_way.ops
        refused = [*refused, *unwritten]
        unknown = OutcomeUnknown(message)
        outcomes: list[tuple[Op, ApiError]] = [(op, unknown) for op in doubtful]
        for ops, is_gone in ((torn, self._cut_off(torn)), (landed, self._take_out(landed)), (refused, True)):
            outcomes += [(op, self.failure if is_gone else unknown) for op in ops]
        for topic in {topic for op, _ in outcomes for topic in op.topics}:
            topic.take_back_all()
        for op, outcome in outcomes:
            op.fail(outcome)

    def _cut_off(self, torn: Sequence[Op]) -> bool:
        """Whether nothing is left of a group that was written in part."""
        try:
            if torn:
                self._journal.cut_back()
            return True
        except OSError as error:
            return self._cannot_tell(error)

    def _take_out(self, landed: list[Op]) -> bool:
        """Whether nothing is left of operations that were written and have not taken effect."""
        try:
            if landed:
                void_frames(self._journal, [op.span for op in landed if op.frames])
            return True
        except (OSError, MemoryError) as error:
            return self._cannot_tell(error)

    @staticmethod
    def _cannot_tell(error: Exception) -> bool:
        log.error("what was refused may be there after a restart: %s; its writers get no answer", error)
        return False


def frames_of(ops: list[Op]) -> list[FrameDraft]:
    """Return the frames of all operations, in order."""
    return [frame for op in ops for frame in op.frames]


def without_refused(
    ops: list[Op], refused_topics: set[Topic], refused: list[Op], *, without_growth: bool = False
) -> list[Op]:
    """Return operations that do not build on refused ones, nor make the log larger if `without_growth`.

    The others are added to `refused`, and their topics to `refused_topics`.
    """
    left: list[Op] = []
    for op in ops:
        topics = op.topics
        if (without_growth and op.grows) or not refused_topics.isdisjoint(topics):
            refused.append(op)
            refused_topics.update(topics)
        else:
            left.append(op)
    return left

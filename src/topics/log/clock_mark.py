"""How late it may get before the disk has to know: a time in the journal, a little ahead of the clock.

Age takes records without a frame of its own, and moves the line below which readers are told of a loss. What
keeps that line from falling when the power goes and the clock is set back is a time on disk that will not be
undercut. So no record goes by age at a time that no such mark covers, as long as the disk takes marks at all:
too old is too old, also while writes are off. Marks are written when records expire, and ahead of need while
they go on doing so; a server on which nothing expires writes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.log.write.operation import CallbackOp, Op
from topics.storage.frame import Kind
from topics.storage.journal import Journal

if TYPE_CHECKING:
    from topics.log.write.commit_queue import CommitQueue

# After a power loss the clock may stand this much ahead, so it is short; and each mark costs a sync.
AHEAD_MS = 2000


class ClockMark:
    __slots__ = ("_asked_ms", "_target", "reached_ms")

    def __init__(self) -> None:
        # The latest time that the journal or the snapshot has on disk.
        self.reached_ms = 0
        self._asked_ms = 0
        # Where marks go, once writes are taken.
        self._target: tuple[Journal, CommitQueue] | None = None

    def start(self, journal: Journal, queue: CommitQueue) -> None:
        self._target = journal, queue

    def cover(self, now_ms: int) -> None:
        """Records are about to go by age at this time: a mark beyond it, synced, if there can be one."""
        self._asked_ms = max(self._asked_ms, now_ms)
        if now_ms > self.reached_ms and self._target is not None:
            journal, queue = self._target
            if queue.failure is None and queue.note_synced(_frame(journal, now_ms)):
                self.reached_ms = now_ms + AHEAD_MS

    def catch_up(self) -> None:
        """What went by age before marks could be written gets its mark now."""
        self.cover(self._asked_ms)

    def extend(self, now_ms: int) -> None:
        """Ahead of need, so that nobody whose records go by age has to wait for the disk."""
        if self._target is None or not self._is_running_out(now_ms):
            return

        def apply(_: Op) -> None:
            self.reached_ms = max(self.reached_ms, now_ms + AHEAD_MS)

        journal, queue = self._target
        queue.submit(CallbackOp(_frame(journal, now_ms), None, apply, lambda _: None, sync=True))

    def _is_running_out(self, now_ms: int) -> bool:
        """Records have lately been going, and the mark will not last much longer."""
        is_in_use = now_ms - self._asked_ms < AHEAD_MS
        return is_in_use and self.reached_ms - now_ms < AHEAD_MS // 2

    def restart(self, now_ms: int) -> None:
        """A snapshot knows the time now; marks in the journal below it are not read any more."""
        self.reached_ms = min(self.reached_ms, now_ms)


def _frame(journal: Journal, now_ms: int) -> list[bytes]:
    return journal.frame(Kind.CLOCK, b"", ts=now_ms + AHEAD_MS)

"""How late it may get before the disk has to know: a time in the journal, a little ahead of the clock.

Age takes records without a frame of its own, and moves the line below which readers are told of a loss. What
keeps that line from falling when the power goes and the clock is set back is a time on disk that will not be
undercut. So no record goes by age at a time that no such mark covers, as long as the disk takes marks at all:
too old is too old, also while writes are off. Marks are written when records expire, and ahead of need while
they go on doing so; a server on which nothing expires writes none.
"""

from __future__ import annotations

from collections.abc import Callable

# After a power loss the clock may stand this much ahead, so it is short; and each mark costs a sync.
AHEAD_MS = 2000


class ClockMark:
    __slots__ = ("_asked_ms", "reached_ms", "renew")

    def __init__(self) -> None:
        # The latest time that the journal or the snapshot has on disk.
        self.reached_ms = 0
        self._asked_ms = 0
        # Writes a mark beyond the given time, synced, if it can. Recovery needs none: it repeats.
        self.renew: Callable[[int], None] | None = None

    def cover(self, now_ms: int) -> None:
        """Records are about to go by age at this time."""
        self._asked_ms = max(self._asked_ms, now_ms)
        if now_ms > self.reached_ms and self.renew is not None:
            self.renew(now_ms)

    def is_running_out(self, now_ms: int) -> bool:
        """Records have lately been going, and the mark will not last much longer."""
        is_in_use = now_ms - self._asked_ms < AHEAD_MS
        return is_in_use and self.reached_ms - now_ms < AHEAD_MS // 2

    def restart(self, now_ms: int) -> None:
        """A snapshot knows the time now; marks in the journal below it are not read any more."""
        self.reached_ms = min(self.reached_ms, now_ms)

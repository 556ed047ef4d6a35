"""How late it may get before the disk has to know: a time in the journal, a little ahead of the clock.

Age takes records without a frame of its own, and moves the line below which readers are told of a loss. What
keeps that line from falling when the power goes and the clock is set back is a time on disk that will not be
undercut. So no record goes by age at a time that no such mark covers, as long as the disk takes marks at all:
too old is too old, also while writes are off. Marks are written when records expire, and ahead of need while
they go on doing so; a server on which nothing expires writes none.
"""

from collections.abc import Callable

# After a power loss the clock may stand this much ahead, so it is short; and each mark costs a sync.
AHEAD_MS = 2000


class ClockMark:
    def __init__(self) -> None:
        # The latest time that the journal or the snapshot has on disk.
        self.reached_ms = 0
        self._asked_ms = 0
        # How often the clock was set back.
        self._steps_back = 0
        # How marks are written, once writes are taken.
        self._write: Callable[[int], bool] | None = None
        self._submit: Callable[[int, Callable[[], None]], None] | None = None

    def start(self, write: Callable[[int], bool], submit: Callable[[int, Callable[[], None]], None]) -> None:
        """`write` puts a time on disk at once, if that can be done; `submit` calls back when it is there."""
        self._write, self._submit = write, submit

    def cover(self, now_ms: int) -> None:
        """Records are about to go by age at this time: a mark beyond it, synced, if there can be one."""
        self._asked_ms = max(self._asked_ms, now_ms)
        if now_ms > self.reached_ms and self._write is not None and self._write(now_ms + AHEAD_MS):
            self.reached_ms = now_ms + AHEAD_MS

    def catch_up(self) -> None:
        """What went by age before marks could be written gets its mark now."""
        self.cover(self._asked_ms)

    def extend(self, now_ms: int) -> None:
        """Ahead of need, so that no reader waits for the disk because records go by age."""
        if self._submit is not None and self._is_running_out(now_ms):
            upto, steps_back = now_ms + AHEAD_MS, self._steps_back
            self._submit(upto, lambda: self._note_if_it_counts(upto, steps_back))

    def _note_if_it_counts(self, ms: int, steps_back: int) -> None:
        """Where the clock was set back meanwhile, the journal says so behind this mark: it is over."""
        if steps_back == self._steps_back:
            self.note(ms)

    def note(self, ms: int) -> None:
        """This time is on disk."""
        self.reached_ms = max(self.reached_ms, ms)

    def _is_running_out(self, now_ms: int) -> bool:
        """Records have lately been going, and the mark will not last much longer."""
        is_in_use = now_ms - self._asked_ms < AHEAD_MS
        return is_in_use and self.reached_ms - now_ms < AHEAD_MS // 2

    def restart(self, now_ms: int) -> None:
        """A snapshot knows the time now; marks in the journal below it are not read any more."""
        self.reached_ms = min(self.reached_ms, now_ms)

    def set_back(self, now_ms: int) -> None:
        """The clock was set back to here, and the journal knows: later times have to be marked again."""
        self._steps_back += 1
        self.reached_ms = now_ms
        self._asked_ms = min(self._asked_ms, now_ms)

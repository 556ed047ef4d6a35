"""The time of a log: what is shown to readers, what the disk knows of it, and its lead over the clock.

ShownTime   never goes back while it is shown; follows a clock that was set back once the journal knows
ClockMark   a time in the journal, a little ahead, which no restart undercuts
ClockLead   how far the times of records run ahead of the clock
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from topics.core import NS_PER_MS, Clock, moment
from topics.storage import Witness

if TYPE_CHECKING:
    from topics.log.topic import Topic

# After a power loss the clock may stand this much ahead, so it is short; and each mark costs a sync.
AHEAD_MS = 2000
# A clock that is so much behind what was shown is waited for: after a power loss the time on disk may be two
# seconds ahead, and small corrections are no reason to write anything.
WAITED_FOR_MS = 10_000


class ShownTime:
    """Wall clock, never behind what was shown before: not in this process, not before a restart.

    Replay depends on it. Age takes records without a frame of its own, so frames that follow have to carry a
    time at which the same records are gone. A clock that is a little behind is therefore waited for. One that
    was set back is not, or time would stand still for as long: once the journal has been told what had gone
    by then, time goes on from where the clock is.
    """

    def __init__(self, clock: Clock, witness: Witness) -> None:
        self._now_ns = clock.now_ns
        self._witness = witness
        # The latest time that was shown, since the clock was last set back.
        self.floor_ms = 0
        # The latest time that was shown before.
        self.left_ms = 0
        # Tells the journal that time goes on from here, and restarts; False when that cannot be done now.
        # None: not yet.
        self.set_back: Callable[[int], bool] | None = None
        self._is_setting_back = False

    def now_ms(self) -> int:
        now = self._now_ns() // NS_PER_MS
        if now > self.floor_ms:
            self.floor_ms = now
            self._witness.clock(now)
        elif now < self.floor_ms - WAITED_FOR_MS:
            self._follow_back(now)
        return self.floor_ms

    def raise_floor(self, shown_ms: int) -> None:
        """An earlier process had shown this."""
        self.floor_ms = max(self.floor_ms, shown_ms)

    def restart(self, shown_ms: int, now_ms: int) -> None:
        """The clock was set back, from what was shown to this."""
        self.left_ms, self.floor_ms = shown_ms, now_ms

    def _follow_back(self, now: int) -> None:
        # Telling the journal may end in asking for the time.
        if self.set_back is None or self._is_setting_back:
            return
        self._is_setting_back = True
        try:
            if self.set_back(now):
                self._witness.clock(now)
        finally:
            self._is_setting_back = False


class ClockMark:
    """How late it may get before the disk has to know: a time in the journal, a little ahead of the clock.

    Age takes records without a frame of its own, and moves the line below which readers are told of a loss. A
    time on disk that no restart undercuts keeps that line from falling when the power goes and the clock is
    set back. So no record goes by age at a time that no mark covers, as long as the disk takes marks at all.
    Marks are written when records expire, and ahead of need while they go on doing so. A server on which
    nothing expires writes none.
    """

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


log = logging.getLogger("topics")

# Less is not worth a word: clocks are corrected by so much all the time.
TOLD_FROM_MS = 60_000
# Topics are looked at again after a while: one that was ahead may be gone.
_LOOK_EVERY_MS = 5000


class ClockLead:
    """How far the times of records run ahead of the clock.

    The time of records never falls in a topic. If a clock was wrong for a while, topics that were written
    meanwhile stay ahead of it until it has caught up, or until they are dropped.
    """

    def __init__(self, clock: Clock, shown_time: ShownTime, topics: "Mapping[int, Topic]") -> None:
        self._clock = clock
        self._shown_time = shown_time
        self._topics = topics
        self._latest_ms = 0
        self._looked_at_ms = 0
        self._is_told = False

    def ms(self) -> int:
        """In the topic where it is most; 0 if there is none."""
        wall_ms = self._clock.now_ns() // NS_PER_MS
        if self._latest_ms <= wall_ms:
            return 0
        if self._clock.steady_ns() // NS_PER_MS - self._looked_at_ms >= _LOOK_EVERY_MS:
            self.look()
        return max(self._latest_ms - wall_ms, 0)

    def told_ms(self) -> int:
        """The same, or 0 where it is not worth a word."""
        lead_ms = self.ms()
        return lead_ms if lead_ms > TOLD_FROM_MS else 0

    def look(self) -> None:
        """The clock may have been set back: which time is the latest now, and is it to be told?"""
        self._looked_at_ms = self._clock.steady_ns() // NS_PER_MS
        furthest = max(self._topics.values(), key=lambda topic: topic.last_ts, default=None)
        latest_ms = 0 if furthest is None else furthest.last_ts
        self._latest_ms = max(latest_ms, self._shown_time.floor_ms)
        lead_ms = self._latest_ms - self._clock.now_ns() // NS_PER_MS
        if lead_ms <= TOLD_FROM_MS:
            self._is_told = False
        elif not self._is_told:
            self._is_told = True
            where = f'in topic "{furthest.name}", ' if furthest and latest_ms == self._latest_ms else ""
            log.warning(
                "%stime is ahead of the clock by %d seconds: %s is the latest",
                where,
                lead_ms // 1000,
                moment(self._latest_ms),
            )

"""How far the times of records run ahead of the clock.

The time of records never falls in a topic. Where a clock was wrong for a while and was corrected, topics that
were written meanwhile stay ahead of it until it has caught up, or until they are dropped.
"""

import logging
from collections.abc import Mapping

from topics.core import NS_PER_MS, Clock, moment
from topics.log.topic import Topic
from topics.storage import ShownTime

log = logging.getLogger("topics")

# Less is not worth a word: clocks are corrected by so much all the time.
TOLD_FROM_MS = 60_000
# Topics are looked at again after a while: one that was ahead may be gone.
_LOOK_EVERY_MS = 5000


class ClockLead:
    def __init__(self, clock: Clock, shown_time: ShownTime, topics: Mapping[int, Topic]) -> None:
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

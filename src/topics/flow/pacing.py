"""While topics of a high priority are read, work for lower ones gets only a share of each turn of the loop.

A turn handles whatever has arrived, so a reader waits behind every writer that came with it. Here, writers to
topics that matter less than one being read wait instead: first come, first served, a few in every turn, the
sockets looked at in between. When nothing better is being read, no write waits and nothing is measured.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from topics.flow.governor import Governor

# What a reader may find in its way beyond what just arrived: one larger write, or a few small ones.
SHARE_S = 0.0001
# How long a read goes on protecting its topic from others.
PROTECT_S = 1.0
# A topic of a lower priority is not worth holding up others for.
LEAST_PROTECTED = 250
# Topics that are so much less important wait. Priorities that come from recent reads fade all the time, so
# topics that are all in use never wait for each other.
GAP = 250
# Beyond either, waiting is worse than being told to come back.
LONGEST_WAIT_S = 1.0
MOST_HELD_BYTES = 64 * 1024 * 1024
# Writes of one group are answered together, and no reader is meanwhile.
MOST_IN_A_GROUP = 8
# How long it is likely to take until a group has gone.
CROWDED_S = 0.001
# Weight of a new sample of how fast held work is done: one stall tells little.
SMOOTHING = 0.05

_NONE = -1_000_000


class Pacer:
    def __init__(
        self,
        governor: Governor,
        clock: Callable[[], float] = perf_counter,
        *,
        protect_s: float = PROTECT_S,
        open_group: Callable[[], int] = lambda: 0,
    ) -> None:
        """`open_group` tells which group writes gather for; 0 while there are none."""
        self._governor = governor
        self._clock = clock
        self._protect_s = protect_s
        self._open_group = open_group
        # Those let through since this group was opened.
        self._group = self._let_through = 0
        # Looked at by every write, so it is a plain attribute: some topic is being protected.
        self.active = False
        # Lately a write had to wait for it.
        self.pacing = self._has_held = False
        # The highest priority that is protected, and the highest one read since that was last looked at.
        self._priority = self._lately = _NONE
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        self._held_bytes = 0
        # Seconds that each piece of held work has taken lately, the rest of the turn included.
        self._pace_s = SHARE_S
        self._pumped_at = 0.0
        self._turn_ends = 0.0
        self._pumping = False

    @property
    def held(self) -> int:
        return len(self._held)

    # --- who is protected -------------------------------------------------------------------------------

    def protect(self, priority: int) -> None:
        """A topic of this priority is being read."""
        if priority <= self._lately or priority < LEAST_PROTECTED:
            return
        self._lately = priority
        self._priority = max(self._priority, priority)
        if not self.active:
            self.active = True
            asyncio.get_running_loop().call_later(self._protect_s, self._look_again)

    def _look_again(self) -> None:
        self._priority, self._lately = self._lately, _NONE
        self.pacing, self._has_held = self._has_held, False
        if self._priority == _NONE:
            # Nobody looks again before the next read: who had to wait until now is forgotten, too.
            self.active = self.pacing = False
        else:
            asyncio.get_running_loop().call_later(self._protect_s, self._look_again)

    # --- who waits --------------------------------------------------------------------------------------

    def outranks(self, priority: int) -> bool:
        """What is being read matters so much more than a topic of this priority that its writers wait."""
        return priority <= self._priority - GAP

    def holds(self, priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        """True when `work` has been put aside for later; False when it may be done at once.

        Raises when too much waits already, unless the caller is `patient`.
        """
        if not self.outranks(priority):
            return False
        now = self._clock()
        has_time = not self._held and now < self._turn_ends
        if not self._pumping:
            # The first one of this turn: it starts the clock.
            self._pumping = has_time = True
            self._turn_ends = now + SHARE_S
            self._pumped_at = now
            asyncio.get_running_loop().call_soon(self._pump)
        if has_time and not self._is_crowded():
            self._let_through += 1
            return False
        self._hold(size, work, patient=patient)
        return True

    def _is_crowded(self) -> bool:
        group = self._open_group()
        if group != self._group:
            self._group, self._let_through = group, 0
        return group > 0 and self._let_through >= MOST_IN_A_GROUP

    def _hold(self, size: int, work: Callable[[], None], *, patient: bool) -> None:
        if not patient and self._held:
            wait_s = len(self._held) * self._pace_s
            if wait_s > LONGEST_WAIT_S or self._held_bytes + size > MOST_HELD_BYTES:
                raise self._governor.refusal(wait_s * 1000)
        self.pacing = self._has_held = True
        self._held.append((size, work))
        self._held_bytes += size

    def _pump(self) -> None:
        """Once in every turn while something waits, and once more after that."""
        if not self._held:
            self._pumping = False
            self._turn_ends = 0.0
            return
        loop = asyncio.get_running_loop()
        now = self._clock()
        if self._is_crowded():
            # Soon over as a rule. Whatever takes longer is not helped by turning round and round.
            loop.call_later(0.0 if now - self._pumped_at < CROWDED_S else CROWDED_S, self._pump)
            return
        loop.call_soon(self._pump)
        ends = now + SHARE_S
        served = 0
        while self._held and now < ends and not self._is_crowded():
            size, work = self._held.popleft()
            self._held_bytes -= size
            self._let_through += 1
            work()
            served += 1
            now = self._clock()
        # What arrives in the rest of this turn waits for the next.
        self._turn_ends = ends
        self._pace_s += SMOOTHING * ((now - self._pumped_at) / served - self._pace_s)
        self._pumped_at = now

"""While topics of a high priority are read, work for lower priorities gets a share of each turn of the loop.

A turn handles everything that has arrived, so a reader waits for every writer that came with it. The
scheduler makes writers to topics of lower priority wait instead. It serves them in order, a few in every
turn, and the loop looks at its sockets in between. While no topic of higher priority is read, no write waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from topics.flow.load_shedder import LoadShedder

# Work for lower priorities in one turn: one larger write, or a few small ones.
SHARE_S = 0.0001
# How long a read goes on protecting its topic from others.
PROTECT_S = 1.0
# Reads of topics of a lower priority than this protect nothing.
LEAST_PROTECTED = 250
# Topics whose priority is lower by this much wait. Priorities that come from recent reads fade all the time,
# so topics in use never wait for each other.
GAP = 250
# Beyond either limit, a write is refused with 429 instead of waiting.
LONGEST_WAIT_S = 1.0
MOST_HELD_BYTES = 64 * 1024 * 1024
# Writes of one group are answered together, and no reader is answered meanwhile.
MOST_IN_A_GROUP = 8
# How long it usually takes until a group is written.
CROWDED_S = 0.001
# Weight of a new sample of how fast held work is done: one stall tells little.
SMOOTHING = 0.05

_NONE = -1_000_000


class PriorityScheduler:
    def __init__(
        self,
        load_shedder: LoadShedder,
        clock: Callable[[], float] = perf_counter,
        *,
        protect_s: float = PROTECT_S,
        open_group: Callable[[], int] = lambda: 0,
    ) -> None:
        """`open_group` returns the number of the group that gathers writes, or 0."""
        self._load_shedder = load_shedder
        self._clock = clock
        self._protect_s = protect_s
        self._open_group = open_group
        # Writes let through since this group was opened.
        self._group = self._let_through = 0
        # Some topic is protected. Every write looks at it, so it is a plain attribute.
        self.active = False
        # A write had to wait recently.
        self.pacing = self._has_held = False
        # The highest protected priority, and the highest one read since the last look.
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
                raise self._load_shedder.refusal(wait_s * 1000)
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

"""The brake: a writer who is faster than sealing waits for it, so that memory stays what it was meant to be.

What is written stays in memory until a segment has it. As long as that fits into the hot budget, nobody
waits. Above it, each group of writes puts off the next one: by the longer, the larger it was and the more has
piled up. Writes gather meanwhile and are committed together; none is refused for it, and reads go on.
"""

from __future__ import annotations

from topics.log.seal.unsealed import Unsealed

# Less than this is always free: a pass of sealing is worth its files only from some size on.
MIN_FREE_BYTES = 64 * 1024 * 1024
# How fast writers may go when twice the budget is full; at one and a half times it, twice as fast, and so on.
BYTES_PER_S_AT_TWICE = 32 * 1024 * 1024
# Nobody waits longer than this for the sake of what was written before.
MAX_PAUSE_S = 1.0


class Brake:
    def __init__(self, unsealed: Unsealed, hot_bytes: int) -> None:
        self._unsealed = unsealed
        self._free_bytes = max(hot_bytes, MIN_FREE_BYTES)

    @property
    def is_on(self) -> bool:
        return self._unsealed.bytes > self._free_bytes

    def pause_s(self, written_bytes: int) -> float:
        """How long the next group has to wait after one of this size."""
        excess = self._unsealed.bytes / self._free_bytes - 1
        return min(max(written_bytes * excess / BYTES_PER_S_AT_TWICE, 0.0), MAX_PAUSE_S)

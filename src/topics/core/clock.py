"""The time seam: everything that asks for the time asks one of these."""

import time
from datetime import UTC, datetime
from typing import Protocol

NS_PER_MS = 1_000_000


class Clock(Protocol):
    def now_ns(self) -> int:
        """Wall clock, in Unix time. It may be set, forward and back."""

    def steady_ns(self) -> int:
        """Goes forward, and cannot be set: for how long things last. Where it began means nothing."""


class SystemClock:
    # Asked for every write: no call of our own around it.
    now_ns = staticmethod(time.time_ns)
    steady_ns = staticmethod(time.monotonic_ns)


class ManualClock:
    """A clock that only moves when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 0

    def now_ns(self) -> int:
        return self._now_ms * NS_PER_MS

    def steady_ns(self) -> int:
        return self._steady_ms * NS_PER_MS

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Time passes."""
        self._now_ms += ms
        self._steady_ms += ms

    def set(self, now_ms: int) -> None:
        """The wall clock is set, forward or back; no time passes."""
        self._now_ms = now_ms

    def step(self, ms: int) -> None:
        """The same, by so much."""
        self._now_ms += ms

    def reboot(self, steady_ms: int) -> None:
        """The machine starts anew: the steady clock begins somewhere else."""
        self._steady_ms = steady_ms

    def steady_ms(self) -> int:
        return self._steady_ms


def until_next(every_s: float, now_s: float) -> float:
    """Seconds until the next whole multiple, or the one behind it if that is about now.

    All that looks around regularly does so in the same moments: a server with nothing to do is woken once for
    all of it.
    """
    left_s = every_s - now_s % every_s
    return left_s if left_s > every_s / 10 else left_s + every_s


def moment(ms: int) -> str:
    """A time as people write it, for messages."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

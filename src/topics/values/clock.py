"""The time seam: everything that asks for the time asks one of these."""

import time
from datetime import UTC, datetime
from typing import Protocol

NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Wall clock, in Unix time."""

    def now_ns(self) -> int: ...


class SystemClock:
    # Asked for every write: no call of our own around it.
    now_ns = staticmethod(time.time_ns)


class ManualClock:
    """A clock that only moves when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ns(self) -> int:
        return self._now_ms * NS_PER_MS

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def set(self, now_ms: int) -> None:
        self._now_ms = now_ms


def moment(ms: int) -> str:
    """A time as people write it, for messages."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

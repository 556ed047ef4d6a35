"""Measurements: distributions of values, and how long one piece of work keeps the event loop to itself."""

from bisect import bisect_left
from collections.abc import Coroutine, Generator, Iterator
from itertools import accumulate
from time import perf_counter
from typing import Any

# Seconds an answer may take: from a write that joins others to a client that should have given up.
LATENCY_BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """`counts[i]` are the values up to and including `bounds[i]`; the last one takes all above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bound, as Prometheus writes it, with the number of values up to it."""
        names = (*(_plain(bound) for bound in self.bounds), "+Inf")
        return zip(names, accumulate(self.counts), strict=True)


def _plain(bound: float) -> str:
    return f"{bound:.6f}".rstrip("0").rstrip(".") if bound % 1 else f"{bound:.0f}"


# No request should hold the loop for longer; see docs/monitoring.md.
STALL_S = 0.05


class Holds:
    """Those of one route, or of work in the background."""

    __slots__ = ("longest_s",)

    def __init__(self) -> None:
        self.longest_s = 0.0

    def note(self, held_s: float) -> None:
        self.longest_s = max(self.longest_s, held_s)


class TimedSteps(Coroutine[Any, Any, None]):
    """A coroutine, each step of which is timed: between two of them others have their turn."""

    __slots__ = ("_holds", "_inner")

    def __init__(self, inner: Coroutine[Any, Any, None], holds: Holds) -> None:
        self._inner = inner
        self._holds = holds

    def send(self, value: Any) -> Any:
        began = perf_counter()
        try:
            return self._inner.send(value)
        finally:
            self._holds.note(perf_counter() - began)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._inner.__await__()

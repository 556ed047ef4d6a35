"""Counts of measurements by size: the shape of a distribution in a few integers."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

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

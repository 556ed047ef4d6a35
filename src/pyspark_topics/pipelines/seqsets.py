"""Sets of seqs as sorted ranges: what millions of records come down to when few are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Range = tuple[int, int]


@dataclass(frozen=True)
class SeqSet:
    """Ranges with both ends included: ascending, apart from each other, none of them empty."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> SeqSet:
        """From ranges in any order, which may overlap or be empty."""
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if last < first:
                continue
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: SeqSet) -> SeqSet:
        return SeqSet.of((*self.ranges, *other.ranges))

    def __sub__(self, other: SeqSet) -> SeqSet:
        return SeqSet(tuple(self._without(other)))

    def __and__(self, other: SeqSet) -> SeqSet:
        return self - (self - other)

    def _without(self, other: SeqSet) -> Iterator[Range]:
        gone = iter(other.ranges)
        current = next(gone, None)
        for first, last in self.ranges:
            while current is not None and current[1] < first:
                current = next(gone, None)
            at = first
            while current is not None and current[0] <= last:
                if current[0] > at:
                    yield at, current[0] - 1
                at = current[1] + 1
                if current[1] > last:
                    break  # the next range may need it, too
                current = next(gone, None)
            if at <= last:
                yield at, last


def runs_of(seqs: npt.NDArray[np.int64]) -> list[Range]:
    """Stretches without a gap; seqs in any order, each counted once."""
    if not len(seqs):
        return []
    ordered = np.unique(seqs)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.concatenate(([0], breaks + 1))]
    lasts = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))

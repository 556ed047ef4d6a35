"""One life of a topic, accounted for: every seq is present, deleted, announced lost, or unexplained.

Sets of seqs are sorted ranges: what millions of records come down to when few are missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Range = tuple[int, int]

DELETED = "deleted"
# Of a life that has ended: all that is left to say of why.
ANNOUNCED = "announced"
# So many unexplained ranges are listed; the count is always complete.
LISTED = 20


@dataclass(frozen=True)
class SeqSet:
    """Ranges with both ends included: ascending, apart from each other, none of them empty."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Self:
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

    def __or__(self, other: Self) -> Self:
        return self.of((*self.ranges, *other.ranges))

    def __sub__(self, other: Self) -> Self:
        return type(self)(tuple(self._without(other)))

    def __and__(self, other: Self) -> Self:
        return self - (self - other)

    def _without(self, other: Self) -> Iterator[Range]:
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


@dataclass(frozen=True)
class Archived:
    """What the lake holds of a life, and how far it says it has come."""

    records: SeqSet = field(default_factory=SeqSet)
    rows: int = 0
    gaps: SeqSet = field(default_factory=SeqSet)
    reached: int = 0


@dataclass(frozen=True)
class Logged:
    """What the server says of a life that is still there. `missing` is its ledger: ranges by kind."""

    first: int
    head: int
    live: SeqSet
    missing: Mapping[str, SeqSet]


@dataclass(frozen=True)
class Account:
    topic: str
    epoch: int
    # False for a life that has ended: only the lake knows of it.
    is_live: bool
    seqs: int
    archived: int
    live: int
    both: int
    deleted: int
    lost: dict[str, int]
    # What is wrong, as sentences about ranges.
    unexplained: dict[str, SeqSet]
    repeated_rows: int

    @property
    def ok(self) -> bool:
        return not self.unexplained and not self.repeated_rows

    def facts(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "epoch": self.epoch,
            "is_live": self.is_live,
            "ok": self.ok,
            "seqs": self.seqs,
            "archived": self.archived,
            "live": self.live,
            "archived_and_live": self.both,
            "deleted": self.deleted,
            "lost": self.lost,
            "unexplained": {
                why: {"seqs": found.count, "ranges": [list(one) for one in found.ranges[:LISTED]]}
                for why, found in self.unexplained.items()
            },
            "repeated_rows": self.repeated_rows,
        }


NOT_THERE = "neither in the log nor in the archive, and the ledger does not say why"
PASSED = "passed by the archive, which has neither the record nor a gap"
INVENTED = "in the archive, but never given out by this log"


def account(topic: str, epoch: int, archived: Archived, logged: Logged | None) -> Account:
    """`logged` is None for a life that has ended."""
    if logged is None:
        whole, live, problems = SeqSet.of([(1, archived.reached)]) | archived.records, SeqSet(), {}
        # With a topic goes its ledger; what the archive did not get was deleted with it at the latest.
        gone = {ANNOUNCED: archived.gaps, DELETED: whole - archived.records - archived.gaps}
    else:
        whole, live = SeqSet.of([(logged.first, logged.head)]), logged.live
        gone = {kind: seqs & whole for kind, seqs in logged.missing.items()}
        problems = _problems(whole, archived, logged, gone)
    present = archived.records | live
    deleted = gone.pop(DELETED, SeqSet()) - present
    lost = {kind: seqs - present for kind, seqs in gone.items()}
    return Account(
        topic,
        epoch,
        logged is not None,
        (whole | _union(lost.values())).count,
        archived.records.count,
        live.count,
        (archived.records & live).count,
        deleted.count,
        {kind: seqs.count for kind, seqs in lost.items() if seqs},
        {why: seqs for why, seqs in problems.items() if seqs},
        archived.rows - archived.records.count,
    )


def _problems(
    whole: SeqSet, archived: Archived, logged: Logged, gone: Mapping[str, SeqSet]
) -> dict[str, SeqSet]:
    passed = SeqSet.of([(logged.first, min(archived.reached, logged.head))])
    return {
        NOT_THERE: whole - archived.records - logged.live - _union(gone.values()),
        PASSED: passed - archived.records - archived.gaps - gone.get(DELETED, SeqSet()),
        INVENTED: archived.records - whole,
    }


def _union(sets: Iterable[SeqSet]) -> SeqSet:
    return SeqSet.of(one for seqs in sets for one in seqs.ranges)


def by_kind(ranges: Iterable[tuple[int, int, str]]) -> dict[str, SeqSet]:
    found: dict[str, list[Range]] = {}
    for first, last, kind in ranges:
        found.setdefault(kind, []).append((first, last))
    return {kind: SeqSet.of(found[kind]) for kind in found}

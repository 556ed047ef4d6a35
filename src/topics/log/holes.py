"""Holes: seqs that were promised and are gone, at the front of the log or inside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topics.log.remove import ledger

if TYPE_CHECKING:
    from topics.log.topic import Topic


@dataclass(slots=True)
class Hole:
    """Seqs that were promised and are gone. `interior` ones interrupt a read on their own."""

    first: int
    last: int
    kind: int
    interior: bool
    # Of one that a router brought: how many routers it has come through.
    hops: int = 1


def add_hole(
    topic: Topic, first: int, last: int, kind: int, *, interior: bool | None = None, hops: int = 1
) -> None:
    """Seqs at the top that will never be readable: loss at the front, or a gap inside the log."""
    if last < first:
        return
    topic.head = max(topic.head, last)
    topic.assigned = max(topic.assigned, last)
    interior = topic.live_count > 0 if interior is None else interior
    note_hole(topic, first, last, kind, interior=interior, hops=hops)
    if not topic.live_count:
        topic.floor = topic.head + 1


def note_hole(topic: Topic, first: int, last: int, kind: int, *, interior: bool, hops: int = 1) -> None:
    topic.note_change()
    if not interior:
        _raise_line(topic, kind, last)
    if topic.holes:
        top = topic.holes[-1]
        alike = (top.kind, top.interior, top.hops) == (kind, interior, hops)
        if alike and top.last + 1 == first:
            top.last = last
            return
    topic.holes.append(Hole(first, last, kind, interior, hops))
    topic.holes.sort(key=lambda hole: hole.first)


def _raise_line(topic: Topic, kind: int, seq: int) -> None:
    if kind == ledger.TRIM:
        topic.trim_hi = max(topic.trim_hi, seq)
    else:
        topic.lost_hi = max(topic.lost_hi, seq)


def absorb_holes(topic: Topic) -> None:
    """A cap or TTL loss that passed a hole makes it part of the front gap."""
    passed = max(topic.cap_hi, topic.ttl_hi)
    for hole in topic.holes:
        if hole.interior and hole.last <= passed:
            hole.interior = False
            _raise_line(topic, hole.kind, hole.last)


def hole_after(topic: Topic, seq: int) -> Hole | None:
    """The first interior hole that reaches above `seq`."""
    for hole in topic.holes:
        if hole.interior and hole.last > seq:
            return hole
    return None

"""The announcement of loss: an exact range, and a hint why."""

from __future__ import annotations

import msgspec


class Tombstone(msgspec.Struct, gc=False):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


def tombstone(gap_from: int, gap_to: int, reason: str, earliest_seq: int, head_seq: int) -> Tombstone:
    return Tombstone(gap_from, gap_to, reason, max(gap_to - gap_from + 1, 0), earliest_seq, head_seq)

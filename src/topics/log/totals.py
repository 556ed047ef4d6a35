"""Sums over all topics, kept as topics change, so that quotas and metrics never have to walk them."""

from __future__ import annotations


class Totals:
    __slots__ = ("bytes", "damage", "pending_bytes", "records")

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.pending_bytes = 0
        # Damaged stretches found in files, by recovery or by a reader.
        self.damage = 0

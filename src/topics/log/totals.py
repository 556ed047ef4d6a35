"""Sums over all topics, kept as topics change, so that quotas and metrics never have to walk them."""

from __future__ import annotations


class Totals:
    __slots__ = ("bytes", "pending_bytes", "records")

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.pending_bytes = 0

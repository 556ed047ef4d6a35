"""Sums over all topics, kept as topics change, so that quotas and metrics never have to walk them."""

from __future__ import annotations

from topics.log.remove.ledger import KIND_NAMES


class Totals:
    __slots__ = (
        "bytes",
        "damage",
        "pending_bytes",
        "read_records",
        "records",
        "removed_bytes",
        "removed_records",
        "tombstones",
    )

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.pending_bytes = 0
        # Damaged stretches found in files, by recovery or by a reader.
        self.damage = 0
        self.start_counting()

    def start_counting(self) -> None:
        """What follows counts what happens from now on: what recovery repeats has been counted before."""
        # Records that were live until they went, by their kind in the ledger.
        self.removed_records = [0] * len(KIND_NAMES)
        self.removed_bytes = [0] * len(KIND_NAMES)
        # Records that went out to readers, by the way they took.
        self.read_records = {"diff": 0, "stream": 0, "scan": 0}
        # Announcements of loss that went out to readers, by reason.
        self.tombstones = dict.fromkeys(("cap", "ttl", "mixed", "source_trim", "recreated"), 0)

    def removed(self, kind: int, count: int, size: int) -> None:
        self.removed_records[kind] += count
        self.removed_bytes[kind] += size

    def served(self, way: str, count: int, gap: str | None) -> None:
        """A reader got so many records, and before them perhaps the news of a loss."""
        self.read_records[way] += count
        if gap is not None:
            self.tombstones[gap] += 1

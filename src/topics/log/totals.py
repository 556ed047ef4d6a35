"""Sums over all topics, kept as topics change, so that quotas and metrics never have to walk them."""

from collections.abc import Callable

from topics.log.losses_told import LossesTold
from topics.log.remove.ledger import KIND_NAMES


class Totals:
    __slots__ = (
        "bytes",
        "damage",
        "losses_told",
        "now_ms",
        "pending_bytes",
        "read_records",
        "records",
        "removed_bytes",
        "removed_records",
        "tombstones",
    )

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.losses_told = LossesTold(now_ms)
        self.bytes = 0
        self.records = 0
        self.pending_bytes = 0
        # Damaged stretches found in files, by recovery or by a reader.
        self.damage = 0
        self.start_counting()

    def start_counting(self) -> None:
        """From zero, once recovery is over: what it repeats was counted by the process that did it first."""
        # Records that were live until they went, by their kind in the ledger.
        self.removed_records = [0] * len(KIND_NAMES)
        self.removed_bytes = [0] * len(KIND_NAMES)
        # How many records readers received: in pages, through streams and sockets, in bulk reads.
        self.read_records = {"diff": 0, "stream": 0, "scan": 0}
        # How many tombstones readers received, by reason.
        self.tombstones = dict.fromkeys(("cap", "ttl", "mixed", "source_trim", "recreated"), 0)

    def published(self, count: int, size: int) -> None:
        """So many records that were assigned have become visible."""
        self.pending_bytes -= size
        self.records += count
        self.bytes += size

    def removed(self, kind: int, count: int, size: int) -> None:
        self.removed_records[kind] += count
        self.removed_bytes[kind] += size

    def served(self, way: str, count: int) -> None:
        """A reader got so many records in this way."""
        self.read_records[way] += count

    def told(self, topic: str, reason: str, missed: int) -> None:
        """A reader of this topic got a tombstone."""
        self.tombstones[reason] += 1
        self.losses_told.note(topic, reason, missed)

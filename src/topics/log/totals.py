"""Sums over all topics, and the topics whose readers were told of a loss in the last day."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from topics.log.remove.ledger import KIND_NAMES

HOUR_MS = 3_600_000
KEPT_HOURS = 24
# Beyond that, the topic whose last loss was told longest ago is forgotten.
MAX_TOPICS = 1000


@dataclass(slots=True)
class Told:
    """Of one topic. Tombstones and records missed, by the hour in which they were told."""

    last_ms: int = 0
    reason: str = ""
    hours: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, now_ms: int, reason: str, missed: int) -> None:
        self.last_ms, self.reason = now_ms, reason
        hour = now_ms // HOUR_MS
        count, before = self.hours.get(hour, (0, 0))
        self.hours[hour] = (count + 1, before + missed)
        self.forget(now_ms)

    def forget(self, now_ms: int) -> None:
        oldest = now_ms // HOUR_MS - KEPT_HOURS
        for hour in [hour for hour in self.hours if hour <= oldest]:
            del self.hours[hour]

    @property
    def tombstones(self) -> int:
        return sum(count for count, _ in self.hours.values())

    @property
    def missed(self) -> int:
        return sum(missed for _, missed in self.hours.values())


class LossesTold:
    """The topics that told their readers of a loss, in the last day. Every start begins with none."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # The topic that told one last comes last.
        self._by_topic: dict[str, Told] = {}

    def note(self, topic: str, reason: str, missed: int) -> None:
        told = self._by_topic.pop(topic, None) or Told()
        told.add(self._now_ms(), reason, missed)
        self._by_topic[topic] = told
        if len(self._by_topic) > MAX_TOPICS:
            del self._by_topic[next(iter(self._by_topic))]

    def recent(self) -> Iterator[tuple[str, Told]]:
        """The latest first."""
        now = self._now_ms()
        for topic, told in reversed(self._by_topic.items()):
            told.forget(now)
            if told.hours:
                yield topic, told


class Totals:
    """Sums over all topics, kept as topics change, so that quotas and metrics never walk over them."""

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

    def note_pending(self, size: int) -> None:
        """Records of so many bytes have seqs and are not visible yet; fewer, if `size` is negative."""
        self.pending_bytes += size

    def published(self, count: int, size: int) -> None:
        """So many records that were assigned have become visible."""
        self.pending_bytes -= size
        self.records += count
        self.bytes += size

    def add_live(self, count: int, size: int) -> None:
        """So many records more are live; fewer, if the numbers are negative."""
        self.records += count
        self.bytes += size

    def found_damage(self) -> None:
        """A damaged stretch was found in a file."""
        self.damage += 1

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

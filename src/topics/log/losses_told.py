"""Which topics had to tell their readers of a loss, in the last day. It begins anew with every start."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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

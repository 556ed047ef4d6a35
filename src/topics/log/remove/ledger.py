"""Why each seq below the floor is gone, and roughly when. Watermarks cannot tell deleted from lost."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

DELETED, CAP, TTL, TRIM, LOST = range(5)
KIND_NAMES = ("deleted", "cap", "ttl", "trim", "lost")
# 17 bytes each.
MAX_RANGES = 1 << 20
# Of times, for one topic.
MAX_STRETCHES = 32
_SAME_MS = 1000
# First seq, last seq, and the times between which they went; 0 where it is not known since when.
_FIELDS = 4
# Losses that readers were told of are counted by the hour, for a day.
HOUR_MS = 3_600_000
KEPT_HOURS = 24
# Beyond that, the topic whose last loss was told longest ago is forgotten.
MAX_TOPICS = 1000
# At first, what is joined may have taken so much of the time that has passed since.
_SPAN = 1 / 8


class Ledger:
    """Why seqs are gone, as ranges in three flat columns.

    Ranges are merged as they are added, so a topic that only evicts keeps one range. A client that deletes
    every other record makes as many ranges as there are records. Beyond a bound, two of the oldest
    neighbours become one, as lost as the worse of them.
    """

    __slots__ = ("firsts", "kinds", "lasts")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.kinds = bytearray()

    def add(self, first: int, last: int, kind: int) -> None:
        """Ranges arrive in ascending order, because the floor only rises."""
        if last < first:
            return
        if self.kinds and self.kinds[-1] == kind and self.lasts[-1] + 1 == first:
            self.lasts[-1] = last
            return
        self.firsts.append(first)
        self.lasts.append(last)
        self.kinds.append(kind)
        if len(self.kinds) > MAX_RANGES:
            self._coarsen(MAX_RANGES // 2)

    def _coarsen(self, count: int) -> None:
        """Make half as many of so many ranges at the beginning, and no deletion of what was lost."""
        firsts, lasts = self.firsts[:count:2], self.lasts[1:count:2]
        kinds = bytes(map(max, self.kinds[:count:2], self.kinds[1:count:2]))
        self.firsts[:count], self.lasts[:count], self.kinds[:count] = firsts, lasts, kinds

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.firsts, self.lasts, self.kinds, strict=True)

    def ranges_above(self, seq: int) -> Iterator[tuple[int, int, int]]:
        """Yield the ranges that end above a seq."""
        for at in range(bisect_right(self.lasts, seq), len(self.lasts)):
            yield self.firsts[at], self.lasts[at], self.kinds[at]

    def kind_of(self, seq: int) -> int | None:
        """Why this seq is gone, if it is in here."""
        at = bisect_left(self.lasts, seq)
        return self.kinds[at] if at < len(self.kinds) and self.firsts[at] <= seq else None

    def dump(self) -> tuple[bytes, bytes, bytes]:
        return self.firsts.tobytes(), self.lasts.tobytes(), bytes(self.kinds)

    def load(self, dumped: tuple[bytes, bytes, bytes]) -> None:
        self.firsts, self.lasts = array("q"), array("q")
        self.firsts.frombytes(dumped[0])
        self.lasts.frombytes(dumped[1])
        self.kinds = bytearray(dumped[2])


class GoneTimes:
    """When seqs went: a few stretches with the times between which they did.

    This is for people who ask; nothing depends on it. Snapshots keep it, and replay notes again what went
    after them. Seqs that go within one second, side by side, are one stretch. When there are too many
    stretches, neighbours in time become one that covers both: the older, the wider.
    """

    __slots__ = ("_stretches",)

    def __init__(self, packed: bytes = b"") -> None:
        self._stretches = array("q", packed)

    def note(self, first: int, last: int, after_ms: int, by_ms: int) -> None:
        """These went between the two times; before the second, if the first is 0."""
        known = self._stretches
        if known:
            begin, end = min(known[-2], after_ms), max(known[-1], by_ms)
            is_near = first <= known[-3] + 1 and last >= known[-4] - 1
            if is_near and end - begin < _SAME_MS:
                known[-_FIELDS:] = array("q", (min(known[-4], first), max(known[-3], last), begin, end))
                return
        known.extend((first, last, after_ms, by_ms))
        if len(known) > MAX_STRETCHES * _FIELDS:
            self._coarsen()

    def _coarsen(self) -> None:
        # A few fewer than may be, so that this is not done for each that comes.
        enough, span = max(MAX_STRETCHES * 3 // 4, 1) * _FIELDS, _SPAN
        latest = max(self._stretches[_FIELDS - 1 :: _FIELDS])
        while len(self._stretches) > enough:
            self._stretches = _joined(self._stretches, span, latest)
            span *= 2

    def between(self, first: int, last: int) -> tuple[int, int] | None:
        """When some of these went, the first time 0 if it is not known; None if all are still there."""
        begin = end = 0
        known = self._stretches
        for at in range(0, len(known), _FIELDS):
            if known[at] <= last and known[at + 1] >= first:
                begin = min(begin, known[at + 2]) if end else known[at + 2]
                end = max(end, known[at + 3])
        return (begin, end) if end else None

    def cut(self, head: int) -> None:
        """No seq above this was ever given out."""
        known = self._stretches
        self._stretches = array("q")
        for at in range(0, len(known), _FIELDS):
            if known[at] <= head:
                self._stretches.extend((known[at], min(known[at + 1], head), known[at + 2], known[at + 3]))

    def pack(self) -> bytes:
        return self._stretches.tobytes()


def _joined(known: "array[int]", span: float, latest: int) -> "array[int]":
    """With those as one that together took no more than this share of the time since."""
    joined = known[:_FIELDS]
    for at in range(_FIELDS, len(known), _FIELDS):
        first, last, after_ms, by_ms = known[at : at + _FIELDS]
        begin, end = min(joined[-2], after_ms), max(joined[-1], by_ms)
        if end - begin <= span * (latest - end + _SAME_MS):
            both = (min(joined[-4], first), max(joined[-3], last), begin, end)
            joined[-_FIELDS:] = array("q", both)
        else:
            joined.extend((first, last, after_ms, by_ms))
    return joined


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

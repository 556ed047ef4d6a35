"""What operations do to topics, in a form that can be taken back: a crash may undo the latest of them.

A topic here is a dictionary of what a reader must be able to see, kept small enough to be compared after
every crash. Caps and age are told the way the rules are told; `tests/model` proves the engine's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.model.reference import matches
from topics.core.config import TopicConfig

if TYPE_CHECKING:
    from tests.crash.keys import Keyed

Match = tuple[str, str]


@dataclass(slots=True)
class Record:
    seq: int
    ts: int
    data: bytes
    tag: str | None = None
    node: str | None = None
    # Of class ephemeral: any restart takes it, and says so.
    is_volatile: bool = False

    @property
    def row(self) -> bytes:
        node = b"" if self.node is None else b'"$node":"%b",' % self.node.encode()
        return b'{"$seq":%d,"$ts":%d,%b"data":%b}' % (self.seq, self.ts, node, self.data)

    def copy_at(self, seq: int, ts: int, *, is_volatile: bool) -> Record:
        return Record(seq, ts, self.data, self.tag, self.node, is_volatile)


@dataclass(slots=True)
class TopicModel:
    id: int
    name: str
    config: TopicConfig
    first_life: bool = True
    head: int = 0
    live: dict[int, Record] = field(default_factory=dict)
    live_bytes: int = 0
    cap_hi: int = 0
    ttl_hi: int = 0
    lost_hi: int = 0
    trim_hi: int = 0
    # Every record that ever had a seq, and the seqs of those that a crash may or may not have left.
    written: dict[int, Record] = field(default_factory=dict)
    # What a cap has taken. If a file with what it left rots, the cap may find room for some of it again.
    evicted: set[int] = field(default_factory=set)
    presumed: set[int] = field(default_factory=set)
    # What is remembered of writes with a key, and every answer that one of them ever got.
    keys: dict[str, Keyed] = field(default_factory=dict)
    keys_ever: set[tuple[str, tuple[int, int]]] = field(default_factory=set)
    # Of a queue: jobs whose writers have an answer; jobs finished or deleted, for certain or perhaps;
    # jobs of whose loss a worker was told; and whether a restart may have taken any of this since.
    acknowledged: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    has_crashed: bool = False
    has_lost_power: bool = False
    # The highest seq anybody was told of: never given out again.
    shown_head: int = 0
    shown_floor: int = 1
    shown_line: int = 1

    @property
    def floor(self) -> int:
        return next(iter(self.live), self.head + 1)

    @property
    def loss_line(self) -> int:
        return min(max(self.cap_hi, self.ttl_hi, self.lost_hi, self.trim_hi) + 1, self.head + 1)

    @property
    def shown(self) -> tuple[int, int, int]:
        return self.shown_head, self.shown_floor, self.shown_line

    def take(self, record: Record) -> None:
        del self.live[record.seq]
        self.live_bytes -= len(record.data)

    def put_back(self, records: list[Record]) -> None:
        if records:
            self.live.update((record.seq, record) for record in records)
            self.live = dict(sorted(self.live.items()))
            self.live_bytes += sum(len(record.data) for record in records)

    def expire(self, now: int, last: int | None = None) -> None:
        """`last`: none above it."""
        ttl_ms = self.config.ttl_ms
        while ttl_ms and self.live:
            oldest = next(iter(self.live.values()))
            if now - oldest.ts <= ttl_ms or (last is not None and oldest.seq > last):
                return
            self.take(oldest)
            self.ttl_hi = max(self.ttl_hi, oldest.seq)

    def unexpired(self, now: int) -> list[Record]:
        """What age would leave."""
        ttl_ms = self.config.ttl_ms
        return [record for record in self.live.values() if not ttl_ms or now - record.ts <= ttl_ms]

    def evict(self) -> list[Record]:
        cap, cap_bytes = self.config.cap_records, self.config.cap_bytes
        evicted = []
        while (cap and len(self.live) > cap) or (cap_bytes and self.live_bytes > cap_bytes):
            oldest = next(iter(self.live.values()))
            self.take(oldest)
            self.cap_hi = oldest.seq
            self.evicted.add(oldest.seq)
            evicted.append(oldest)
        return evicted


class Effect:
    """`undo` takes back what the last `apply` did; age stays, because time does."""

    def apply(self) -> None:
        raise NotImplementedError

    def undo(self) -> None:
        raise NotImplementedError


class Added(Effect):
    """Records at the head. Copies of a source that lost some come with holes: `last` is behind them all."""

    __slots__ = ("_before", "evicted", "last", "records", "topic", "trimmed", "ts")

    def __init__(
        self, topic: TopicModel, records: list[Record], ts: int, last: int | None = None, trimmed: int = 0
    ) -> None:
        self.topic = topic
        self.records = records
        self.ts = ts
        self.last = records[-1].seq if last is None else last
        # End of a hole in front of everything: it moves the loss line.
        self.trimmed = trimmed
        self.evicted: list[Record] = []
        self._before = (0, 0, 0)

    def apply(self) -> None:
        topic = self.topic
        topic.expire(self.ts)
        self._before = topic.head, topic.cap_hi, topic.trim_hi
        for record in self.records:
            topic.live[record.seq] = topic.written[record.seq] = record
            topic.live_bytes += len(record.data)
        topic.head = self.last
        topic.trim_hi = max(topic.trim_hi, self.trimmed)
        self.evicted = topic.evict()

    def undo(self) -> None:
        topic = self.topic
        topic.head, topic.cap_hi, topic.trim_hi = self._before
        topic.put_back(self.evicted)
        for record in self.records:
            if record.seq in topic.live:
                topic.take(record)


class Removed(Effect):
    """A deletion of what lies below `bound` and is chosen."""

    __slots__ = ("bound", "match", "removed", "seqs", "topic", "ts")

    def __init__(
        self,
        topic: TopicModel,
        ts: int,
        bound: int,
        *,
        match: Match | None = None,
        seqs: set[int] | None = None,
    ) -> None:
        self.topic = topic
        self.ts = ts
        self.bound = bound
        self.match = match
        self.seqs = seqs
        self.removed: list[Record] = []

    def apply(self) -> None:
        topic, seqs = self.topic, self.seqs
        topic.expire(self.ts)
        self.removed = [
            record
            for record in topic.live.values()
            if record.seq < self.bound
            and matches(record.tag, self.match)
            and (seqs is None or record.seq in seqs)
        ]
        for record in self.removed:
            topic.take(record)

    def undo(self) -> None:
        self.topic.put_back(self.removed)
        self.topic.finished.difference_update(record.seq for record in self.removed)


class Configured(Effect):
    __slots__ = ("_before", "_gone", "config", "topic", "ts")

    def __init__(self, topic: TopicModel, config: TopicConfig, ts: int) -> None:
        self.topic = topic
        self.config = config
        self.ts = ts
        self._before = topic.config, topic.cap_hi, topic.ttl_hi
        self._gone: list[Record] = []

    def apply(self) -> None:
        topic = self.topic
        topic.expire(self.ts)
        self._before = topic.config, topic.cap_hi, topic.ttl_hi
        before = topic.live.copy()
        topic.config = self.config
        topic.expire(self.ts)
        topic.evict()
        self._gone = [record for record in before.values() if record.seq not in topic.live]

    def undo(self) -> None:
        topic = self.topic
        topic.config, topic.cap_hi, topic.ttl_hi = self._before
        topic.put_back(self._gone)


class Did(Effect):
    """Anything that is a pair of functions."""

    __slots__ = ("_apply", "_undo")

    def __init__(self, apply: Callable[[], object], undo: Callable[[], object]) -> None:
        self._apply = apply
        self._undo = undo

    def apply(self) -> None:
        self._apply()

    def undo(self) -> None:
        self._undo()

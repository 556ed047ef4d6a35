"""A topic as a plain list of records: slow, and meant to be obviously right.

Every record ever written stays in the list with its fate. Everything a reader may see is computed from that
list, one seq at a time, the way the rules are told and not the way the engine works.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from topics.core.config import TopicConfig

LIVE, DELETED, CAP, TTL, LOST = "live", "deleted", "cap", "ttl", "lost"


@dataclass
class Draft:
    """A record as a producer sends it."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        return len(compact(self.data)) + (0 if self.meta is None else len(compact(self.meta)))

    def to_json(self) -> dict[str, Any]:
        optional = {"tag": self.tag, "node": self.node, "meta": self.meta}
        return {"data": self.data} | {key: value for key, value in optional.items() if value is not None}


@dataclass
class Record:
    seq: int
    ts: int
    draft: Draft
    # Written while the class was ephemeral: a restart takes it away.
    is_volatile: bool
    fate: str = LIVE

    @property
    def is_live(self) -> bool:
        return self.fate == LIVE

    def rendered(self, *, tags: bool, meta: bool) -> dict[str, Any]:
        line: dict[str, Any] = {"$seq": self.seq, "$ts": self.ts}
        if self.draft.node is not None:
            line["$node"] = self.draft.node
        if tags and self.draft.tag is not None:
            line["$tag"] = self.draft.tag
        line["data"] = self.draft.data
        if meta and self.draft.meta is not None:
            line["meta"] = self.draft.meta
        return line


@dataclass
class Keyed:
    """What is remembered of a write that came with a key."""

    first: int
    last: int
    ts: int
    is_volatile: bool


@dataclass
class Answer:
    """`tombstone`: gap_from, gap_to, reason, missed_estimate, earliest_seq, head_seq, previous_epoch."""

    records: list[dict[str, Any]]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: tuple[int, int, str, int, int, int, int | None] | None
    caught_up: bool
    lag: int


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def matches(tag: str | None, match: tuple[str, str] | None) -> bool:
    """`match` is ("Eq", tag) or ("Glob", prefix)."""
    if match is None:
        return True
    if tag is None:
        return False
    return tag == match[1] if match[0] == "Eq" else tag.startswith(match[1])


@dataclass
class ReferenceTopic:
    config: TopicConfig
    epoch: int
    first_life: bool = True
    records: list[Record] = field(default_factory=list)
    cap_hi: int = 0
    ttl_hi: int = 0
    lost_hi: int = 0
    # By the key that came with a write.
    keys: dict[str | None, Keyed] = field(default_factory=dict)
    # Restart holes that had live records below them, as (first, last).
    interior_holes: list[tuple[int, int]] = field(default_factory=list)

    # --- state ------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return len(self.records)

    @property
    def live(self) -> list[Record]:
        return [record for record in self.records if record.is_live]

    @property
    def floor(self) -> int:
        return next((record.seq for record in self.records if record.is_live), self.head + 1)

    @property
    def loss_line(self) -> int:
        return min(max(self.cap_hi, self.ttl_hi, self.lost_hi) + 1, self.head + 1)

    @property
    def count(self) -> int:
        return len(self.live)

    @property
    def bytes(self) -> int:
        return sum(record.draft.size for record in self.live)

    def account(self) -> list[tuple[int, int, str]]:
        """Why each seq below the floor is gone, as merged ranges."""
        ranges: list[tuple[int, int, str]] = []
        for record in self.records[: self.floor - 1]:
            if ranges and ranges[-1][2] == record.fate:
                ranges[-1] = (ranges[-1][0], record.seq, record.fate)
            else:
                ranges.append((record.seq, record.seq, record.fate))
        return ranges

    # --- changes ----------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        for record in self.live:
            if self.config.ttl_ms and now - record.ts > self.config.ttl_ms:
                record.fate = TTL
                self.ttl_hi = record.seq
        self._take_in_holes()

    def enforce_caps(self) -> None:
        while self._is_over_cap():
            victim = self.live[0]
            victim.fate = CAP
            self.cap_hi = victim.seq
        self._take_in_holes()

    def _is_over_cap(self) -> bool:
        config = self.config
        return bool(
            (config.cap_records and self.count > config.cap_records)
            or (config.cap_bytes and self.bytes > config.cap_bytes)
        )

    def _take_in_holes(self) -> None:
        """A hole that cap or age has passed belongs to the gap at the front."""
        passed = max(self.cap_hi, self.ttl_hi)
        for first, last in [hole for hole in self.interior_holes if hole[1] <= passed]:
            self.interior_holes.remove((first, last))
            self.lost_hi = max(self.lost_hi, last)

    def write(self, drafts: list[Draft], now: int, key: str | None = None) -> tuple[int, int, bool]:
        """First and last seq, and whether it is a retry, of which nothing is written.

        Raises before anything changed when the write is refused.
        """
        self._let_keys_go(now)
        if key in self.keys:
            return self.keys[key].first, self.keys[key].last, True
        self.expire(now)
        if self.config.discard == "reject":
            self._admit(drafts)
        first = self.head + 1
        ts = max(now, self.records[-1].ts) if self.records else now
        volatile = self.config.durability == "ephemeral"
        for seq, draft in enumerate(drafts, first):
            self.records.append(Record(seq, ts, draft, volatile))
        if key is not None and self.config.idempotency_window_ms:
            self.keys[key] = Keyed(first, self.head, ts, volatile)
        self.enforce_caps()
        return first, self.head, False

    def _let_keys_go(self, now: int) -> None:
        """A key is remembered for the window that the topic has, as long as it has had one."""
        window_ms = self.config.idempotency_window_ms
        self.keys = {
            key: keyed for key, keyed in self.keys.items() if window_ms and now - keyed.ts <= window_ms
        }

    def _admit(self, drafts: list[Draft]) -> None:
        caps = self.config.cap_records, self.config.cap_bytes
        batch = len(drafts), sum(draft.size for draft in drafts)
        held = self.count, self.bytes
        if any(cap and size > cap for cap, size in zip(caps, batch, strict=True)):
            raise Refused("record_too_large")
        if any(cap and size + used > cap for cap, size, used in zip(caps, batch, held, strict=True)):
            raise Refused("topic_full")

    def delete(
        self,
        before: int | None,
        match: tuple[str, str] | None,
        now: int,
        seqs: list[int] | None = None,
    ) -> int:
        self.expire(now)
        victims = [
            record
            for record in self.live
            if (before is None or record.seq < before)
            and (seqs is None or record.seq in seqs)
            and matches(record.draft.tag, match)
        ]
        for record in victims:
            record.fate = DELETED
        return len(victims)

    def configure(self, config: TopicConfig, now: int) -> None:
        # What the old TTL has already taken stays gone, whatever the new one says.
        self.expire(now)
        self._let_keys_go(now)
        self.config = config
        self.expire(now)
        self._let_keys_go(now)
        self.enforce_caps()

    # --- reading ----------------------------------------------------------------------------------------

    def read(
        self,
        now: int,
        from_seq: int,
        limit: int,
        max_bytes: int,
        *,
        nodes: frozenset[str] = frozenset(),
        tags: bool = False,
        meta: bool = True,
        epoch: int | None = None,
    ) -> Answer:
        self.expire(now)
        if not self.config.dedupe_node:
            nodes = frozenset()
        position, gap = self._start(from_seq, epoch)
        hole = self._hole_at(position + 1)
        if hole is not None and gap is None:
            gap, position = (position + 1, hole[1], "cap"), hole[1]
        delivered: list[Record] = []
        for record in self.records[position:]:
            if self._hole_at(record.seq) is not None:
                break
            if record.is_live and (record.draft.node is None or record.draft.node not in nodes):
                if delivered and sum(r.draft.size for r in [*delivered, record]) > max_bytes:
                    break
                delivered.append(record)
            position = record.seq
            if len(delivered) == limit:
                break
        return Answer(
            [record.rendered(tags=tags, meta=meta) for record in delivered],
            position,
            self.head,
            self.floor,
            None if gap is None else self._tombstone(*gap, epoch),
            position == self.head,
            self.head - position,
        )

    def _tombstone(
        self, first: int, last: int, reason: str, epoch: int | None
    ) -> tuple[int, int, str, int, int, int, int | None]:
        width = max(last - first + 1, 0)
        return first, last, reason, width, self.floor, self.head, epoch if reason == "recreated" else None

    def _start(self, from_seq: int, epoch: int | None) -> tuple[int, tuple[int, int, str] | None]:
        before_floor = self.floor - 1
        if from_seq > self.head or (epoch is not None and epoch != self.epoch):
            return before_floor, (1, before_floor, "recreated")
        if from_seq + 1 < self.loss_line:
            return before_floor, (from_seq + 1, before_floor, self._reason(from_seq + 1))
        return from_seq, None

    def _reason(self, gap_from: int) -> str:
        by_cap, by_ttl = self.cap_hi >= gap_from, self.ttl_hi >= gap_from
        if by_cap and by_ttl:
            return "mixed"
        return "ttl" if by_ttl else "cap"

    def _hole_at(self, seq: int) -> tuple[int, int] | None:
        return next((hole for hole in self.interior_holes if hole[0] <= seq <= hole[1]), None)

    # --- restarts ---------------------------------------------------------------------------------------

    @property
    def has_volatile(self) -> bool:
        return any(record.is_volatile for record in self.records)

    def forget_volatile_keys(self) -> None:
        self.keys = {key: keyed for key, keyed in self.keys.items() if not keyed.is_volatile}

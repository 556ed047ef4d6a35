"""What answers and writes look like, for the OpenAPI document. Imported with the first request for it.

Tests decode what the server really sends into these, and no key may be left over.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.values.config import ConfigBody, TopicConfig
from topics.values.settings import MAX_BATCH_RECORDS, MAX_META_KEYS

Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]
Tag = Literal["cap", "ttl", "mixed", "source_trim", "recreated"]


class Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Keys may be added to answers at any time; clients ignore those they do not know."""


class Performance(Answer, kw_only=True):
    server_total_ms: Milliseconds
    wal_append_ms: Milliseconds | UnsetType = UNSET
    fsync_ms: Milliseconds | UnsetType = UNSET
    records_scanned: Count | UnsetType = UNSET
    cold_segments_read: Count | UnsetType = UNSET


class Timed(Answer, kw_only=True):
    performance: Performance


# Errors


class ErrorBody(Answer, kw_only=True):
    code: str
    message: Annotated[str, Meta(min_length=1)]
    detail: dict[str, Any] | UnsetType = UNSET


class Error(Answer, kw_only=True):
    error: ErrorBody


# Probes and metrics


class Health(Answer, kw_only=True):
    status: Literal["ok"]
    version: str
    uptime_ms: Count


class Ready(Answer, kw_only=True):
    status: Literal["ready"]
    wal_replay_complete: Literal[True]
    topics: Count


# Topics


class TopicPut(Timed, kw_only=True):
    topic: str
    created: bool
    config: TopicConfig


class QueueCounters(Answer, kw_only=True):
    ready: Count
    in_flight: Count
    dead_lettered: Count


class TopicState(Timed, kw_only=True):
    topic: str
    type: Literal["log", "queue"]
    head_seq: Count
    earliest_seq: Count
    next_seq: Count
    count: Count
    bytes: Count
    epoch: Count
    config: TopicConfig
    effective_priority: int
    last_write_ts: Count | None
    last_read_ts: Count | None
    queue: QueueCounters | UnsetType = UNSET


class TopicEntry(Answer, kw_only=True):
    topic: str
    head_seq: Count
    earliest_seq: Count
    count: Count
    bytes: Count
    durable: bool
    effective_priority: int


class TopicList(Timed, kw_only=True):
    topics: list[TopicEntry]
    next_cursor: str | UnsetType = UNSET


class TopicDropped(Timed, kw_only=True):
    topic: str
    deleted: bool
    routers_removed: list[str]


# Records


class RecordBody(msgspec.Struct, kw_only=True):
    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Annotated[dict[str, Any], Meta(max_length=MAX_META_KEYS)] | None = None


class WriteBody(msgspec.Struct, kw_only=True):
    records: Annotated[list[RecordBody], Meta(min_length=1, max_length=MAX_BATCH_RECORDS)]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False


class Appended(Timed, kw_only=True):
    topic: str
    first_seq: Count
    last_seq: Count
    seqs: list[Count] | UnsetType = UNSET
    head_seq: Count
    count: Count
    created: bool
    deduped: bool


class Record(Answer, kw_only=True):
    seq: Count = msgspec.field(name="$seq")
    ts: Count = msgspec.field(name="$ts")
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    data: Any
    meta: dict[str, Any] | UnsetType = UNSET


class Tombstone(Answer, kw_only=True):
    gap_from: Count
    gap_to: Count
    reason: Tag
    missed_estimate: Count
    earliest_seq: Count
    head_seq: Count


class Diff(Timed, kw_only=True):
    topic: str
    records: list[Record]
    next_from_seq: Count
    head_seq: Count
    earliest_seq: Count
    caught_up: bool
    tombstone: Tombstone | None
    lag: Count
    epoch: Count


class Deleted(Timed, kw_only=True):
    topic: str
    deleted: Count
    earliest_seq: Count
    head_seq: Count
    count: Count
    bytes: Count


# Queues


class Job(Answer, kw_only=True):
    seq: Count = msgspec.field(name="$seq")
    ts: Count = msgspec.field(name="$ts")
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    lease_id: Annotated[str, Meta(pattern="^lease_[0-9a-f]+$")]
    deadline: Count
    deliveries: Annotated[int, Meta(ge=1)]
    data: Any
    meta: dict[str, Any] | UnsetType = UNSET


class Claimed(Timed, kw_only=True):
    topic: str
    count: Count
    ready: Count
    claimed: list[Job]


class Acked(Timed, kw_only=True):
    topic: str
    acked: Count
    skipped: list[Count]
    ready: Count
    in_flight: Count


class Nacked(Timed, kw_only=True):
    topic: str
    nacked: Count
    skipped: list[Count]
    ready: Count
    in_flight: Count


class Extended(Timed, kw_only=True):
    topic: str
    extended: Count
    skipped: list[Count]
    deadlines: dict[str, Count]


# Routers


class RouterDefinition(Timed, kw_only=True):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: tuple[Literal["tag"], Literal["Eq", "Glob"], str] | None
    allow_cycle: bool
    guarantee: Literal["at_least_once", "exactly_once"]


class RouterPut(RouterDefinition, kw_only=True):
    created: bool


class RouterState(RouterDefinition, kw_only=True):
    forwarded_total: Count


class RouterEntry(Answer, kw_only=True):
    router: str
    source: str
    dest: str
    guarantee: Literal["at_least_once", "exactly_once"]
    forwarded_total: Count


class RouterList(Timed, kw_only=True):
    routers: list[RouterEntry]
    next_cursor: str | UnsetType = UNSET


class RouterDropped(Timed, kw_only=True):
    router: str
    deleted: bool


# Watch


class WatchedTopic(Answer, kw_only=True):
    from_seq: Count
    head_seq: Count
    earliest_seq: Count


class WatchSession(Timed, kw_only=True):
    wid: Annotated[str, Meta(pattern="^wid_[A-Za-z0-9_-]{22}$")]
    stream_url: str
    session_ttl_ms: Count
    topics: dict[str, WatchedTopic]

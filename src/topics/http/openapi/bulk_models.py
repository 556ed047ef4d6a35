"""What the answers of the bulk plane and of operators' routes look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Literal

import msgspec

from topics.http.openapi.models import Answer, Count, Performance, Timed

# Bulk plane


class BatchResult(Answer, kw_only=True):
    first_seq: Count | None
    last_seq: Count | None
    count: Count
    deduped: bool


class BulkAppended(Timed, kw_only=True):
    topic: str
    batches: list[BatchResult]
    head_seq: Count
    count: Count
    created: bool


class SnapshotLease(Timed, kw_only=True):
    snapshot: str
    expires_ms: Count


class SegmentRun(Answer, kw_only=True):
    path: str
    topic_id: Count
    base: Count
    count: Count
    first_ts: Count
    last_ts: Count
    dead: str


class Hole(Answer, kw_only=True):
    gap_from: Count
    gap_to: Count
    reason: str


class Manifest(SnapshotLease, kw_only=True):
    topic: str
    epoch: Count
    head_seq: Count
    earliest_seq: Count
    loss_line: Count
    seq_base: Count
    ttl_ms: Count
    now: Count
    data_dir: str
    runs: list[SegmentRun]
    tail_from_seq: Count
    holes: list[Hole]


class SnapshotReleased(Timed, kw_only=True):
    snapshot: str
    released: bool


class LedgerRange(Answer, kw_only=True):
    first: Count = msgspec.field(name="from")
    last: Count = msgspec.field(name="to")
    kind: Literal["deleted", "cap", "ttl", "trim", "lost"]


class Ledger(Timed, kw_only=True):
    topic: str
    epoch: Count
    head_seq: Count
    earliest_seq: Count
    ranges: list[LedgerRange]


class CursorEntry(Answer, kw_only=True):
    consumer: str
    seq: Count
    epoch: Count
    lag: Count
    updated_ts: Count


class CursorState(CursorEntry, kw_only=True):
    topic: str
    performance: Performance


class CursorPut(CursorState, kw_only=True):
    created: bool


class CursorList(Timed, kw_only=True):
    topic: str
    head_seq: Count
    cursors: list[CursorEntry]


class CursorDropped(Timed, kw_only=True):
    topic: str
    consumer: str
    deleted: bool


class StagePart(Timed, kw_only=True):
    stage: str
    part: str
    count: Count
    topics: list[str]


class CommittedRange(Answer, kw_only=True):
    first_seq: Count
    last_seq: Count
    count: Count


class StageCommitted(Timed, kw_only=True):
    committed: Literal[True]
    deduped: bool
    topics: dict[str, CommittedRange]


class StageDropped(Timed, kw_only=True):
    stage: str
    deleted: bool


# Operations


class PurgeState(Timed, kw_only=True):
    purge: str
    topics: list[str] | None
    state: Literal["waiting", "running", "done", "failed"]
    phase: Literal["sealing", "rewriting", "releasing"]
    started_ms: Count
    finished_ms: Count | None
    files: Count
    files_examined: Count
    files_rewritten: Count
    files_held: Count
    records: Count
    segment_bytes: int
    journal_bytes: Count
    error: str | None


class HeldFile(Answer, kw_only=True):
    number: Count
    path: str


class HeldJournal(Answer, kw_only=True):
    path: str
    base: Count
    end: Count


class HoldLease(Timed, kw_only=True):
    hold: str
    expires_ms: Count


class HeldFiles(HoldLease, kw_only=True):
    now: Count
    data_dir: str
    topics: Count
    position: Count
    snapshots: list[HeldFile]
    segments: list[HeldFile]
    journal: list[HeldJournal]


class HoldReleased(Timed, kw_only=True):
    hold: str
    released: bool

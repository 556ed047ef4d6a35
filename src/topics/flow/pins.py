"""Snapshots for readers that open segment files themselves.

A snapshot says which files hold which records, under one consistent view, and pins those files: they are
neither removed nor moved until the lease is over. Deletions go on meanwhile; a flag may be newer than the
snapshot, never older, because the snapshot itself names the deletions its files do not show yet.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from topics.log.engine import Engine
from topics.log.read.page import hole_reason
from topics.log.run import Run
from topics.log.topic import Topic
from topics.values.errors import limit_reached

LEASE_MS = 60_000
MAX_SNAPSHOTS = 1000


@dataclass(slots=True)
class PinnedRun:
    """Consecutive records in one file. `dead`: indexes of those deleted without a flag in the file."""

    path: str
    topic_id: int
    base: int
    count: int
    first_ts: int
    last_ts: int
    dead: bytes


@dataclass(slots=True)
class Snapshot:
    id: str
    expires_ms: int
    topic_id: int
    runs: list[PinnedRun]
    # Everything above this seq is only to be had from the server.
    tail_from_seq: int
    holes: list[tuple[int, int, str]]
    files: frozenset[int]


class Pins:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._snapshots: dict[str, Snapshot] = {}
        engine.store.is_pinned = self.is_pinned

    def take(self, topic: Topic) -> Snapshot:
        """What is sealed of the topic, from its floor up to the first record that is not in a file yet."""
        self._sweep()
        if len(self._snapshots) >= MAX_SNAPSHOTS:
            raise limit_reached("max_snapshots", MAX_SNAPSHOTS)
        self._engine.refresh(topic)
        runs: list[Run] = []
        tail_from_seq = topic.head
        for run in topic.runs:
            if run.live_count and run.sealed is None:
                tail_from_seq = max(run.base, topic.floor) - 1
                break
            if run.live_count:
                runs.append(run)
        snapshot = Snapshot(
            secrets.token_hex(16),
            self._engine.now() + LEASE_MS,
            topic.id,
            [self._pinned(run) for run in runs],
            tail_from_seq,
            [(hole.first, hole.last, hole_reason(hole)) for hole in topic.holes if hole.interior],
            frozenset(run.sealed.segment for run in runs if run.sealed is not None),
        )
        self._snapshots[snapshot.id] = snapshot
        return snapshot

    def _pinned(self, run: Run) -> PinnedRun:
        assert run.sealed is not None
        path = os.path.abspath(self._engine.store.path(run.sealed.segment))
        dead = run.sealed.unflipped.tobytes()
        return PinnedRun(path, run.topic_id, run.base, run.count, run.first_ts, run.last_ts, dead)

    def renew(self, topic: Topic, snapshot_id: str) -> Snapshot | None:
        """Another lease from now on; None when the snapshot is not there any more."""
        snapshot = self._find(topic, snapshot_id)
        if snapshot is not None:
            snapshot.expires_ms = self._engine.now() + LEASE_MS
        return snapshot

    def release(self, topic: Topic, snapshot_id: str) -> bool:
        if self._find(topic, snapshot_id) is None:
            return False
        del self._snapshots[snapshot_id]
        return True

    def is_pinned(self, number: int) -> bool:
        self._sweep()
        return any(number in snapshot.files for snapshot in self._snapshots.values())

    def _find(self, topic: Topic, snapshot_id: str) -> Snapshot | None:
        self._sweep()
        snapshot = self._snapshots.get(snapshot_id)
        return snapshot if snapshot is not None and snapshot.topic_id == topic.id else None

    def _sweep(self) -> None:
        now = self._engine.now()
        for snapshot in [s for s in self._snapshots.values() if s.expires_ms <= now]:
            del self._snapshots[snapshot.id]

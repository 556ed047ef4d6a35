"""Sealed files that something outside the server opens by their path, pinned for as long as a lease runs.

A pin names files that are neither removed nor moved until its lease is over. Two kinds of readers take pins:
readers of the sealed runs of one topic (`SegmentPins`), and backups (`ops.backup_holds`).
"""

import os
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from topics.core import limit_reached
from topics.log import Engine, Run, Topic, hole_reason

LEASE_MS = 60_000


@dataclass(slots=True, kw_only=True)
class FilePin:
    # The numbers of the files.
    segments: Collection[int]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    # When the lease is over: on the clock that cannot be set, and in Unix time as it was reckoned then.
    ends_steady_ms: int = 0
    expires_ms: int = 0


H = TypeVar("H", bound=FilePin)


class FilePins(Generic[H]):
    """The holds of one kind of reader. What they name is neither removed nor moved."""

    def __init__(self, engine: Engine, limit_name: str) -> None:
        self._engine = engine
        self._limit_name = limit_name
        self._holds: dict[str, H] = {}
        engine.store.pinned_by.append(self.is_held)

    def __iter__(self) -> Iterator[H]:
        return iter(self._holds.values())

    def changed(self) -> None:
        """Called when there is a hold more or less."""

    def require_room(self, most: int) -> None:
        self.sweep()
        if len(self._holds) >= most:
            raise limit_reached(self._limit_name, most)

    def add(self, hold: H) -> H:
        self._extend(hold)
        self._holds[hold.id] = hold
        self.changed()
        return hold

    def _extend(self, hold: H) -> None:
        hold.ends_steady_ms = self._engine.steady_ms() + LEASE_MS
        hold.expires_ms = self._engine.now() + LEASE_MS

    def find(self, hold_id: str) -> H | None:
        """None when the hold is not there any more."""
        self.sweep()
        return self._holds.get(hold_id)

    def renew(self, hold_id: str) -> H | None:
        """Another lease from now on."""
        hold = self.find(hold_id)
        if hold is not None:
            self._extend(hold)
        return hold

    def release(self, hold_id: str) -> bool:
        if self.find(hold_id) is None:
            return False
        del self._holds[hold_id]
        self.changed()
        return True

    def is_held(self, segment: int) -> bool:
        self.sweep()
        return any(segment in hold.segments for hold in self._holds.values())

    def sweep(self) -> None:
        """Forget the holds whose lease has run out."""
        now = self._engine.steady_ms()
        ended = [hold for hold in self._holds.values() if hold.ends_steady_ms <= now]
        for hold in ended:
            del self._holds[hold.id]
        if ended:
            self.changed()


MAX_VIEWS = 1000


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


@dataclass(slots=True, kw_only=True)
class SealedView(FilePin):
    topic_id: int
    runs: list[PinnedRun]
    # Everything above this seq is only to be had from the server.
    tail_from_seq: int
    holes: list[tuple[int, int, str]]

    def was_told(self) -> None:
        """Its reader knows what is in the files. All that is left to remember is which ones they are."""
        self.runs, self.holes = [], []


class SegmentPins:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._views: FilePins[SealedView] = FilePins(engine, "max_snapshots")

    def take(self, topic: Topic) -> SealedView:
        """What is sealed of the topic, from its floor up to the first record that is not in a file yet."""
        self._views.require_room(MAX_VIEWS)
        self._engine.refresh(topic)
        runs: list[Run] = []
        tail_from_seq = topic.head
        for run in topic.runs:
            if run.live_count and run.sealed is None:
                tail_from_seq = max(run.base, topic.floor) - 1
                break
            if run.live_count:
                runs.append(run)
        view = SealedView(
            topic_id=topic.id,
            runs=[self._pinned(run) for run in runs],
            tail_from_seq=tail_from_seq,
            holes=[(hole.first, hole.last, hole_reason(hole)) for hole in topic.holes if hole.interior],
            segments=frozenset(run.sealed.segment for run in runs if run.sealed is not None),
        )
        return self._views.add(view)

    def _pinned(self, run: Run) -> PinnedRun:
        assert run.sealed is not None
        path = os.path.abspath(self._engine.store.path(run.sealed.segment))
        dead = run.sealed.unflipped.tobytes()
        return PinnedRun(path, run.topic_id, run.base, run.count, run.first_ts, run.last_ts, dead)

    def renew(self, topic: Topic, view_id: str) -> SealedView | None:
        """Another lease from now on; None when this topic has no such view any more."""
        return self._views.renew(view_id) if self._is_of(topic, view_id) else None

    def release(self, topic: Topic, view_id: str) -> bool:
        return self._is_of(topic, view_id) and self._views.release(view_id)

    def _is_of(self, topic: Topic, view_id: str) -> bool:
        view = self._views.find(view_id)
        return view is not None and view.topic_id == topic.id

"""For readers that open segment files themselves: which files hold which records of a topic.

Such a view (the API calls it a snapshot) is consistent, and pins its files: they are neither removed nor
moved until the lease is over. Deletions go on meanwhile; a flag may be newer than the view, never older,
because the view itself names the deletions its files do not show yet.
"""

import os
from dataclasses import dataclass

from topics.flow.file_pins import FilePin, FilePins
from topics.log import Engine, Run, Topic, hole_reason

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

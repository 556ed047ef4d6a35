"""Sealed runs that are still in memory, because they fit: the oldest leave first."""

from __future__ import annotations

from collections import deque

from topics.log.run import Run
from topics.log.topic import Topic


class HotRuns:
    __slots__ = ("_budget", "_runs", "bytes")

    def __init__(self, budget: int) -> None:
        """`budget`: what these runs and those that are not sealed yet may take together."""
        self._budget = budget
        # With the size it was added with; one whose records are gone meanwhile still has its turn.
        self._runs: deque[tuple[Topic, Run, int]] = deque()
        self.bytes = 0

    def add(self, topic: Topic, run: Run) -> None:
        assert run.hot is not None
        size = run.hot.weight
        self._runs.append((topic, run, size))
        self.bytes += size

    def shrink(self, unsealed_bytes: int) -> None:
        while self._runs and self.bytes + unsealed_bytes > self._budget:
            topic, run, size = self._runs.popleft()
            self.bytes -= size
            if run.hot is not None:
                topic.forget_tags(run)
                run.leave_memory()

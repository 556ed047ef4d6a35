"""What only the journal holds so far: runs that no segment has yet, in the order in which they began.

A checkpoint asks here which runs are full and which have waited too long, so that its work follows what is
new and not what exists. Runs of class ephemeral are never sealed and never listed.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from topics.log.run import Run

if TYPE_CHECKING:
    from topics.log.topic import Topic


class Unsealed:
    __slots__ = (
        "_displaced",
        "_full",
        "_newest",
        "bytes",
        "left_bytes",
        "max_bytes",
        "max_events",
        "runs",
    )

    def __init__(self, max_events: int, max_bytes: int) -> None:
        """A run with so many records or so many bytes of rows is full."""
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.runs: dict[Run, Topic] = {}
        # What all these runs take in memory, and what others had taken that have left since.
        self.bytes = self.left_bytes = 0
        self._full: dict[Run, None] = {}
        # Runs that depend on older journal than their place in the order tells: copies made by routers.
        self._displaced: set[Run] = set()
        self._newest = 0

    def add(self, topic: "Topic", run: Run) -> None:
        """A run begins."""
        self.runs[run] = topic
        if run.start_position < self._newest:
            self._displaced.add(run)
        else:
            self._newest = run.start_position

    def lower(self, run: Run, position: int) -> None:
        """The run now depends on older journal than it did."""
        run.depend_on(position)
        if run in self.runs:
            self._displaced.add(run)

    def grew(self, run: Run, size: int) -> None:
        self.bytes += size
        hot = run.hot
        if hot is not None and (run.count >= self.max_events or hot.size >= self.max_bytes):
            self.complete(run)

    def has_reached_limit(self, run: Run) -> bool:
        """Return whether the run takes no more records."""
        return run.hot is not None and (run.count >= self.max_events or run.hot.size >= self.max_bytes)

    def shrank(self, size: int) -> None:
        self.bytes -= size
        self.left_bytes += size

    def complete(self, run: Run) -> None:
        """The run gets no more records, full or not, or could not be sealed when it was to be."""
        if run in self.runs and run.hot is not None:
            # Without memory for it, the run is full all the same, which whoever comes next will find again.
            with suppress(MemoryError):
                self._full[run] = None
                run.hot.close()

    def is_full(self, run: Run) -> bool:
        """It waits for its segment, and is not to grow any more."""
        return run in self._full

    def discard(self, run: Run) -> None:
        """A segment has the run, or none of it is live any more; called while its rows are still there."""
        if self.runs.pop(run, None) is not None:
            assert run.hot is not None
            self.shrank(run.hot.weight)
            self._full.pop(run, None)
            self._displaced.discard(run)

    @property
    def has_full(self) -> bool:
        return bool(self._full)

    def oldest_position(self, default: int) -> int:
        """Where the journal begins that these runs depend on."""
        first = next(iter(self.runs), None)
        if first is None:
            return default
        return min(default, first.start_position, *(run.start_position for run in self._displaced))

    def take(self, keep_from: int, born_before: int, most: int) -> list[Run]:
        """Full runs, and those that depend on journal below `keep_from` or began before that time.

        The oldest `most` of them, roughly. Whatever of it is not sealed has to be given back.
        """
        found = dict.fromkeys(islice(self._full, most))
        for run in found:
            del self._full[run]
        waiting = chain(self._waiting(keep_from, born_before), self._displaced_below(keep_from))
        found.update(dict.fromkeys(islice(waiting, most)))
        return list(found)

    def _waiting(self, keep_from: int, born_before: int) -> Iterator[Run]:
        for run in self.runs:
            if run.start_position >= keep_from and run.first_ts >= born_before:
                break
            yield run

    def _displaced_below(self, keep_from: int) -> Iterator[Run]:
        return (run for run in sorted(self._displaced, key=Run.place) if run.start_position < keep_from)

"""Sealed runs that were read lately: their columns, ready to use, as many as fit into a bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from topics.log.run import Run
from topics.storage.columns import Columns
from topics.storage.segment import RunEntry, Segment

MAX_RUNS = 512
MAX_BYTES = 96 * 1024 * 1024
# Whoever reads a few runs in turns finds them again, however large they are.
MIN_RUNS = 4
# A decoded name: the string and its place in the list.
_NAME_BYTES = 72


@dataclass(slots=True)
class _View:
    run: Run
    columns: Columns
    segment: Segment
    entry: RunEntry
    size: int


class ReadCache:
    def __init__(self) -> None:
        self._views: OrderedDict[tuple[int, int], _View] = OrderedDict()
        self.bytes = 0

    def find(self, run: Run) -> Columns | None:
        view = self._views.get((run.topic_id, run.base))
        if view is None:
            return None
        self._views.move_to_end((run.topic_id, run.base))
        return view.columns

    def add(self, run: Run, columns: Columns, segment: Segment, entry: RunEntry) -> None:
        first, stop = segment.span(entry)
        size = stop - first + _NAME_BYTES * (len(columns.tags) + len(columns.nodes))
        self._views[run.topic_id, run.base] = _View(run, columns, segment, entry, size)
        self.bytes += size
        while len(self._views) > MAX_RUNS or (self.bytes > MAX_BYTES and len(self._views) > MIN_RUNS):
            self._let_go(self._views.popitem(last=False)[1])

    def _let_go(self, view: _View) -> None:
        self.bytes -= view.size
        view.segment.unload(view.entry)
        view.run.unload_marks()

    def drop_all_of(self, segment: Segment | None) -> None:
        """Those from this file, or simply all."""
        for key, view in [*self._views.items()]:
            if segment is None or view.segment is segment:
                del self._views[key]
                self._let_go(view)

    def drop(self, run: Run) -> None:
        view = self._views.pop((run.topic_id, run.base), None)
        if view is not None:
            self.bytes -= view.size

    def clear(self) -> None:
        self._views.clear()
        self.bytes = 0

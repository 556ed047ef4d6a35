"""Sealed segments as the log sees them: opened when needed, a bounded number at a time, in either tier."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from topics.log.run import Run
from topics.storage.columns import Columns
from topics.storage.filesystem import Filesystem
from topics.storage.segment import DEAD, SUFFIX, Segment, SegmentDamaged, file_name

# Open descriptors and mapped runs are bounded, whatever the number of topics.
MAX_OPEN_SEGMENTS = 256
MAX_CACHED_RUNS = 512


class SegmentStore:
    def __init__(self, fs: Filesystem, hot_dir: str, cold_dir: str | None) -> None:
        self.fs = fs
        self.hot_dir = hot_dir
        self.cold_dir = cold_dir
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._views: OrderedDict[tuple[int, int], tuple[Run, Columns]] = OrderedDict()
        # Runs that still hold something live, per segment file; a file without any can go.
        self.users: dict[int, int] = {}
        self.cold: set[int] = set()
        self.cold_reads = 0
        # Files that somebody outside reads by their path; they are neither removed nor moved.
        self.is_pinned: Callable[[int], bool] = _never

    def find_cold(self) -> None:
        """Which segments have been moved to the second tier; a copy still in the first one wins."""
        if self.cold_dir is not None:
            hot = set(self.fs.list(self.hot_dir))
            for name in self.fs.list(self.cold_dir):
                number = name.removesuffix(SUFFIX)
                if number.isdigit() and name not in hot:
                    self.cold.add(int(number))

    def path(self, number: int) -> str:
        directory = self.hot_dir
        if number in self.cold and self.cold_dir is not None:
            directory = self.cold_dir
        return os.path.join(directory, file_name(number))

    def segment(self, number: int) -> Segment:
        segment = self._open.get(number)
        if segment is None:
            segment = self._open[number] = self.open_for_flips(number)
            if len(self._open) > MAX_OPEN_SEGMENTS:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(number)
        return segment

    def open_for_flips(self, number: int) -> Segment:
        """A handle of the caller's own, so that flips on another thread share nothing with readers."""
        try:
            return Segment(self.fs, self.path(number))
        except OSError as error:
            # Gone or unreadable is the same to a reader: what it held has to be announced as lost.
            raise SegmentDamaged(f"{self.path(number)}: {error}") from error

    def columns(self, run: Run) -> Columns:
        """The run's columns, with `run.dead` loaded. Do not keep them: memory runs go on growing."""
        if run.hot is not None:
            return run.hot.view(run.base)
        assert run.sealed is not None
        key = (run.topic_id, run.base)
        cached = self._views.get(key)
        if cached is not None:
            self._views.move_to_end(key)
            return cached[1]
        if run.sealed.segment in self.cold:
            self.cold_reads += 1
        segment = self.segment(run.sealed.segment)
        entry = segment.entry(run.topic_id, run.base)
        segment.verify(entry)
        columns = segment.columns(entry)
        self._load_dead(run, segment.flags(entry))
        self._views[key] = (run, columns)
        if len(self._views) > MAX_CACHED_RUNS:
            self._unload(*self._views.popitem(last=False)[1])
        return columns

    def _load_dead(self, run: Run, flags: np.ndarray) -> None:
        if not run.dead_count or run.dead is not None:
            return
        assert run.sealed is not None
        marks = (flags == DEAD).astype(np.uint8)
        if run.sealed.unflipped:
            marks[np.frombuffer(run.sealed.unflipped, np.uint32)] = 1
        run.dead = bytearray(marks.tobytes())

    @staticmethod
    def _unload(run: Run, _columns: Columns) -> None:
        if run.hot is None:
            run.dead = None

    def tagged(self, run: Run, code: int) -> np.ndarray:
        assert run.sealed is not None
        segment = self.segment(run.sealed.segment)
        return segment.tagged(segment.entry(run.topic_id, run.base), code)

    def release(self, run: Run) -> None:
        """The run holds nothing live any more: give back its memory and its claim on the file."""
        self._views.pop((run.topic_id, run.base), None)
        run.hot = None
        run.dead = None
        if run.sealed is not None:
            number = run.sealed.segment
            run.sealed = None
            self.users[number] -= 1

    def forget_hot(self, run: Run) -> None:
        """A sealed run leaves memory; its deletions are on disk or in its list of unflipped ones."""
        run.hot = None
        run.dead = None

    def adopt(self, run: Run, number: int) -> None:
        self.users[number] = self.users.get(number, 0) + 1

    def droppable(self) -> list[int]:
        return [n for n, users in self.users.items() if users == 0 and not self.is_pinned(n)]

    def close_file(self, number: int) -> None:
        segment = self._open.pop(number, None)
        if segment is not None:
            segment.close()

    def remove(self, number: int) -> None:
        self.close_file(number)
        self.fs.remove(self.path(number))
        self.users.pop(number, None)
        self.cold.discard(number)

    def close(self) -> None:
        for segment in self._open.values():
            segment.close()
        self._open.clear()
        self._views.clear()


def _never(_: int) -> bool:
    return False

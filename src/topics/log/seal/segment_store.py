"""Sealed segments as the log sees them: opened when needed, a bounded number at a time, in either tier."""

import errno
import os
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from topics.log.run import Run, Unsealed
from topics.storage import (
    ColdFiles,
    Columns,
    Filesystem,
    RunEntry,
    Segment,
    SegmentDamaged,
    numbered_files,
    sweep_segments,
)
from topics.storage.segment import file_name

# Open descriptors are bounded, whatever the number of topics.
MAX_OPEN_SEGMENTS = 256
# Each open segment takes as many: the file, and the mapping's own.
_DESCRIPTORS_EACH = 2
# Errors of opening a file that say nothing about it: the process or the system has used up what it may have.
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
# Errors that speak of the file itself: its records are lost. Any other error may pass, and loses nothing.
_FILE_IS_BAD = {
    errno.ENOENT,
    errno.EIO,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EUCLEAN,
    errno.EBADMSG,
}
# Sealed runs that were read lately are kept ready: so many, within so many bytes.
MAX_RUNS = 512
MAX_BYTES = 96 * 1024 * 1024
# A reader that takes a few runs in turns finds them again, however large they are.
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
    """The columns of sealed runs that were read lately, ready to use, as many as fit into their memory."""

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
        size = stop - first + _NAME_BYTES * sum(len(names) for _, names in columns.names)
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


def entry_of(segment: Segment, run: Run) -> RunEntry:
    """What the file says about a run; another log's file may have one of the same topic and seq."""
    entry = segment.entry(run.topic_id, run.base)
    if (entry.count, entry.first_ts, entry.last_ts) != (run.count, run.first_ts, run.last_ts):
        raise SegmentDamaged(f"{segment.path}: the run at {run.base} is another one")
    return entry


def _load_marks(run: Run, segment: Segment, entry: RunEntry) -> None:
    if not run.load_marks(segment.flags(entry)):
        # No checksum covers the flags. A deleted record must not come back because one has rotted.
        raise SegmentDamaged(f"{segment.path}: flags of run {run.base} are damaged")


class SegmentStore:
    def __init__(self, fs: Filesystem, hot_dir: str, cold_dir: str | None, unsealed: Unsealed) -> None:
        self.fs = fs
        self.hot_dir = hot_dir
        self.cold_dir = cold_dir
        self.cold_files = None if cold_dir is None else ColdFiles(fs, cold_dir)
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._most_open = MAX_OPEN_SEGMENTS
        self._views = ReadCache()
        # Runs that still hold something live, per segment file; a file without any can go.
        self.users: dict[int, int] = {}
        self._unused: set[int] = set()
        self.unsealed = unsealed
        # Sealed runs with deletions that the flags in their file do not show yet.
        self.unflipped: set[Run] = set()
        # Ids of topics that have changed since their state was last captured for a snapshot.
        self.changed: set[int] = set()
        self.cold: set[int] = set()
        self.cold_reads = 0
        # How often a sealed run was found ready to read, and how often its file had to be asked.
        self.cache_hits = self.cache_misses = 0
        # Each tells whether it needs a file to stay where it is: readers outside the server know its path.
        self.pinned_by: list[Callable[[int], bool]] = []
        # Files of which even the flags must not change for the moment.
        self.is_frozen: Callable[[int], bool] = lambda _: False
        # Whether the directory of a file is the one that it was written to.
        self.is_reachable: Callable[[str], bool] = lambda _: True

    def find_cold(self) -> None:
        """Which segments have been moved to the second tier; a copy still in the first one wins."""
        if self.cold_files is not None:
            hot = numbered_files(self.fs, self.hot_dir, file_name)
            self.cold.update(self.cold_files.numbers().difference(hot))

    def note_known(self) -> None:
        """Before the journal is read: the files to which the snapshot refers."""
        if self.cold_files is not None:
            self.cold_files.known = frozenset(number for number, runs in self.users.items() if runs)

    def remove_orphans(self, next_segment: int) -> None:
        """Files that the snapshot did not know when it gave out `next_segment`, unless the journal does."""
        adopted = frozenset(number for number in self.users if number >= next_segment)

        def is_wanted(number: int) -> bool:
            return number < next_segment or number in adopted

        rest = sweep_segments(self.fs, self.hot_dir, is_wanted)
        if self.cold_files is not None:
            rest += self.cold_files.sweep(is_wanted)
        for number in rest:
            self.note_file(number)
        self.cold = set(filter(is_wanted, self.cold))

    def path(self, number: int) -> str:
        directory = self.hot_dir
        if number in self.cold and self.cold_dir is not None:
            directory = self.cold_dir
        return os.path.join(directory, file_name(number))

    def use_descriptors(self, most: int) -> None:
        """Readers' handles take no more than so many."""
        self._most_open = max(min(most // _DESCRIPTORS_EACH, MAX_OPEN_SEGMENTS), 1)

    def segment(self, number: int) -> Segment:
        segment = self._open.get(number)
        if segment is None:
            while len(self._open) >= self._most_open:
                self._close_oldest()
            segment = self._open[number] = self._open_in_want(number)
        else:
            self._open.move_to_end(number)
        return segment

    def _close_oldest(self) -> None:
        segment = self._open.popitem(last=False)[1]
        segment.close()
        # Columns refer to the mapping, and as long as they do, it keeps its descriptor.
        self._views.drop_all_of(segment)

    def _open_in_want(self, number: int) -> Segment:
        """When the system has no more to give, what this store holds comes first."""
        try:
            return self.open_for_flips(number)
        except OSError as error:
            if error.errno not in _SCARCE:
                raise
        self.let_go()
        return self.open_for_flips(number)

    def let_go(self) -> None:
        """Of all that is only kept to read faster."""
        while self._open:
            self._close_oldest()
        self._views.drop_all_of(None)

    def open_for_flips(self, number: int) -> Segment:
        """A handle of the caller's own, so that flips on another thread share nothing with readers."""
        try:
            return Segment(self.fs, self.path(number))
        except OSError as error:
            if error.errno not in _FILE_IS_BAD or not self.is_reachable(self.path(number)):
                raise
            # Gone or unreadable is the same to a reader: what it held has to be announced as lost.
            raise SegmentDamaged(f"{self.path(number)}: {error}") from error

    def columns(self, run: Run) -> Columns:
        """The run's columns, with `run.dead` loaded. Do not keep them: memory runs go on growing."""
        if run.hot is not None:
            return run.hot.view()
        assert run.sealed is not None
        cached = self._views.find(run)
        if cached is not None:
            self.cache_hits += 1
            return cached
        self.cache_misses += 1
        if run.sealed.segment in self.cold:
            self.cold_reads += 1
        segment = self.segment(run.sealed.segment)
        entry = entry_of(segment, run)
        segment.verify(entry)
        columns = segment.columns(entry)
        _load_marks(run, segment, entry)
        self._views.add(run, columns, segment, entry)
        return columns

    def load_marks(self, run: Run) -> None:
        """Nothing but the marks, which the caller has to see gone again: only columns are let go by age."""
        assert run.sealed is not None
        segment = self.segment(run.sealed.segment)
        _load_marks(run, segment, entry_of(segment, run))

    def unload(self, run: Run) -> None:
        """What is known of a run that left memory is out of date: the next reader asks the file."""
        if run.hot is None:
            self._views.drop(run)
            run.unload_marks()

    def release(self, run: Run) -> None:
        """Give back the memory of a run without live records, and its claim on the file.

        The run keeps its place among those of its topic.
        """
        if run.hot is None:
            self._views.drop(run)
        self.unsealed.discard(run)
        self.unflipped.discard(run)
        self.changed.add(run.topic_id)
        number = run.release()
        if number:
            self._leave(number)

    def seal(self, run: Run, number: int, unflipped: "array[int]") -> None:
        """A file has the run from now on, with flags that lack only the given deletions."""
        self.unsealed.discard(run)
        self.changed.add(run.topic_id)
        run.seal(number, unflipped)
        (self.unflipped.add if unflipped else self.unflipped.discard)(run)
        self.users[number] = self.users.get(number, 0) + 1
        self._unused.discard(number)

    def note_file(self, number: int) -> None:
        """The file exists, whether or not a run refers to it."""
        if not self.users.setdefault(number, 0):
            self._unused.add(number)

    def _leave(self, number: int) -> None:
        self.users[number] -= 1
        if not self.users[number]:
            self._unused.add(number)

    def move(self, run: Run, number: int, unflipped: "array[int]") -> None:
        """Another file has the run from now on, with flags that lack only the given deletions."""
        assert run.sealed is not None
        self._views.drop(run)
        self._leave(run.sealed.segment)
        self.seal(run, number, unflipped)

    def droppable(self) -> list[int]:
        return [number for number in sorted(self._unused) if not self.is_pinned(number)]

    def is_pinned(self, number: int) -> bool:
        """Whether the file must be neither removed nor moved."""
        return any(needs(number) for needs in self.pinned_by)

    def close_file(self, number: int) -> None:
        segment = self._open.pop(number, None)
        if segment is not None:
            segment.close()

    def forget(self, number: int) -> str:
        """Returns the path of its file, which is the caller's to `remove`."""
        path = self.path(number)
        self.close_file(number)
        self.users.pop(number, None)
        self._unused.discard(number)
        self.cold.discard(number)
        return path

    def remove(self, path: str) -> None:
        """Any thread: remove a file, unless it lies in the cold directory and is not ours."""
        if self.cold_files is not None and os.path.dirname(path) == self.cold_dir:
            self.cold_files.remove(int(os.path.basename(path).partition(".")[0]))
        else:
            self.fs.remove(path)

    def close(self) -> None:
        for segment in self._open.values():
            segment.close()
        self._open.clear()
        self._views.clear()

"""A run: consecutive records of one topic, in memory, in a sealed segment, or both.

Seqs inside a run are dense, so a record is found by subtraction. Nothing survives per record in memory but
its bytes and a few integers in flat arrays; a run that is sealed and no longer hot keeps only its counters.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topics.codec import AnyRows
from topics.core import FIELDS, NODE_AT, TAG_AT
from topics.log.packing import Names, PackedEnds, copied, grow, view
from topics.log.seal.snapshot_state import RunState
from topics.storage import DEAD, I64, NO_NAMES, U8, U32, Columns, around_data, total_at

if TYPE_CHECKING:
    from topics.log.topic import Topic

# From which record on which time holds, the first from index 0.
Times: TypeAlias = list[tuple[int, int]]
# Calls into numpy cost microseconds each, whatever they do: for so few rows plain Python is faster.
_FEW = 64
# What a record takes in the columns beside its row, and a name that occurs for the first time, roughly: a
# string, its place in a dictionary here and in the index of tags, and their numbers.
RECORD_BYTES = 16
_NAME_BYTES = 224
_NO_VALUES = (None,) * len(FIELDS)
_IN_ROW = [at for at, field in enumerate(FIELDS) if field.is_in_row]
# Runs that take less grow as they please.
_LARGE_ROWS = 64 * 1024


@dataclass(slots=True, eq=False, repr=False)
class HotColumns:
    """Growing columns. Never keep a view of them across a call: an exported buffer cannot grow.

    `base` is the first record's seq; `room`: how many bytes of rows to expect, if that can be told. Rows that
    grow move again and again, and are copied several times over before a run is full. Room made beforehand
    costs nothing until it is used: it is not cleared.
    """

    base: int
    room: InitVar[int] = 0
    # Roughly what it takes in memory.
    weight: int = 0
    rows: bytearray | memoryview = field(default_factory=bytearray)
    # How much of `rows` is in use.
    size: int = 0
    ends: "array[int] | PackedEnds" = field(default_factory=lambda: array("I"))
    # Kept from the first record on that has a node or a meta: until then they follow from the rows.
    data_lens: "array[int] | None" = None
    meta_lens: "array[int] | None" = None
    ts_starts: "array[int]" = field(default_factory=lambda: array("I"))
    ts_values: "array[int]" = field(default_factory=lambda: array("q"))
    # One for each of `FIELDS`; empty until a record has a value of one of them.
    names: tuple[Names, ...] = ()
    hops: bytearray | None = None

    def __post_init__(self, room: int) -> None:
        if room:
            self.rows = np.empty(room, np.uint8).data

    @classmethod
    def beginning(cls, columns: Columns, count: int) -> "HotColumns":
        """A copy of the first `count` records of other columns."""
        hot = cls(columns.base)
        hot.rows = bytearray(memoryview(columns.rows)[: columns.start_of(count)])
        hot.size = hot.weight = len(hot.rows)
        hot.ends = array("I", columns.ends[:count].tobytes())
        hot.data_lens = copied(columns.known_data_lens, count)
        ts = columns.ts[:count]
        changes = np.concatenate(([0], np.flatnonzero(np.diff(ts)) + 1))
        hot.ts_starts = array("I", changes.astype(np.uint32).tobytes())
        hot.ts_values = array("q", ts[changes].astype(np.int64).tobytes())
        hot.meta_lens = copied(columns.meta_lens, count)
        if any(codes is not None for codes, _ in columns.names):
            hot.names = tuple(Names(copied(codes, count), names) for codes, names in columns.names)
        if columns.hops is not None:
            hot.hops = bytearray(columns.hops[:count].tobytes())
        return hot

    def has_to_move(self, more_bytes: int) -> bool:
        """Rows could not be added without copying all that are there."""
        return type(self.rows) is memoryview and self.size + more_bytes > len(self.rows)

    def extend(self, rows: AnyRows, times: Times | None = None) -> int:
        """Add encoded records; return by how much the weight has grown.

        `times` says from which record on which time holds, if not all have the time of `rows`.
        """
        ends = self.ends
        if isinstance(ends, PackedEnds):
            ends = self.ends = ends.unpacked()
        before, offset, count = len(ends), self.size, rows.count
        names, meta_lens, text = rows.names, rows.meta_lens, rows.text
        if self.data_lens is not None:
            self.data_lens.frombytes(rows.data_lens)
        elif meta_lens is not None or (names and any(names[at] is not None for at in _IN_ROW)):
            self.data_lens = array("I", self.view().data_lens.tobytes() if before else b"")
            self.data_lens.frombytes(rows.data_lens)
        end, stored = offset + len(text), self.rows
        if stored.__class__ is bytearray:
            stored += text
        elif end <= len(stored):
            stored[offset:end] = text
        else:
            self.rows = bytearray(stored[:offset])
            self.rows += text
        self.size = end
        added = len(text) + RECORD_BYTES * count
        if count == 1:
            ends.append(end)
        elif count <= _FEW:
            ends.extend([offset + row_end for row_end in memoryview(rows.ends).cast("I")])
        else:
            ends.frombytes((np.frombuffer(rows.ends, np.uint32) + np.uint32(offset)).tobytes())
        for at, ts in times or ((0, rows.ts),):
            if not self.ts_values or self.ts_values[-1] != ts:
                self.ts_starts.append(before + at)
                self.ts_values.append(ts)
        if meta_lens is not None or self.meta_lens is not None:
            self.meta_lens = grow(self.meta_lens, before, meta_lens, count)
        if names or self.names:
            self.names = self.names or tuple(Names() for _ in FIELDS)
            for column, values in zip(self.names, names or _NO_VALUES, strict=True):
                added += _NAME_BYTES * column.extend(before, values, count)
        if rows.hops is not None or self.hops is not None:
            if self.hops is None:
                self.hops = bytearray(before)
            self.hops += rows.hops if rows.hops is not None else bytes(count)
        self.weight += added
        return added

    @property
    def room_for_next(self) -> int:
        """What a run that follows a full one like this will probably take."""
        return self.size + self.size // 8 if self.size >= _LARGE_ROWS else 0

    def close(self) -> None:
        """The run is complete: nothing more is expected."""
        if not isinstance(self.ends, PackedEnds):
            self.ends = PackedEnds(self.ends)
        for column in self.names:
            column.close(len(self.ends))

    def truncate(self, count: int) -> int:
        """Forget everything from index `count` on (records whose commit failed); returns its weight."""
        if isinstance(self.ends, PackedEnds):
            self.ends = self.ends.unpacked()
        before = self.size + RECORD_BYTES * len(self.ends)
        self.size = self.ends[count - 1] if count else 0
        if type(self.rows) is bytearray:
            del self.rows[self.size :]
        codes = [names.codes for names in self.names]
        for column in (self.ends, self.data_lens, self.meta_lens, self.hops, *codes):
            if column is not None:
                del column[count:]
        while self.ts_starts and self.ts_starts[-1] >= count:
            self.ts_starts.pop()
            self.ts_values.pop()
        removed = before - self.size - RECORD_BYTES * len(self.ends)
        self.weight -= removed
        return removed

    @property
    def tags(self) -> Names | None:
        """The tags of the records, if one of them has a tag."""
        return self.names[TAG_AT] if self.names and self.names[TAG_AT].codes is not None else None

    @property
    def has_nodes(self) -> bool:
        return bool(self.names) and self.names[NODE_AT].codes is not None

    def edges(self, start: int, stop: int) -> U32:
        """Where each of these rows begins, and where the last one ends."""
        ends = self.ends
        first = np.array([ends[start - 1] if start else 0], np.uint32)
        if isinstance(ends, PackedEnds):
            return np.concatenate((first, ends.between(start, stop)))
        return np.concatenate((first, np.frombuffer(ends, np.uint32)[start:stop]))

    def ts_at(self, index: int) -> int:
        return self.ts_values[bisect_right(self.ts_starts, index) - 1]

    def size_of(self, indexes: np.ndarray) -> int:
        """What these records count for, together; there are some, in ascending order."""
        if self.data_lens is not None:
            return total_at(indexes, view(self.data_lens), view(self.meta_lens))
        first, last = int(indexes[0]), int(indexes[-1])
        if last - first == len(indexes) - 1:
            return self.size_between(first, last + 1)
        # Neighbours are counted at once, and a view of all records costs more than some stretches of them.
        gaps = np.flatnonzero(np.diff(indexes) != 1).tolist()
        if len(gaps) >= _FEW:
            return self.view().size_of(indexes)
        starts, stops = [0, *[gap + 1 for gap in gaps]], [*gaps, len(indexes) - 1]
        return sum(
            self.size_between(int(indexes[start]), int(indexes[stop]) + 1)
            for start, stop in zip(starts, stops, strict=True)
        )

    def size_between(self, start: int, stop: int) -> int:
        """The same for a stretch, which is not empty."""
        if self.data_lens is not None:
            size = sum(self.data_lens[start:stop])
            return size if self.meta_lens is None else size + sum(self.meta_lens[start:stop])
        around = around_data(self.base + start, self.ts_at(start))
        if stop - start > 1 and around != around_data(self.base + stop - 1, self.ts_at(stop - 1)):
            return int(self.view().sizes(start, stop).sum())
        # Digits only become more: as many in the last row as in the first means as many in all.
        row_bytes = self.ends[stop - 1] - (self.ends[start - 1] if start else 0)
        return row_bytes - (stop - start) * around

    def view(self) -> Columns:
        ends = self.ends
        count = len(ends)
        starts = np.frombuffer(self.ts_starts, np.uint32)
        lengths = np.diff(np.append(starts, count))
        return Columns(
            self.base,
            count,
            self.rows[: self.size] if type(self.rows) is memoryview else self.rows,
            ends.whole() if isinstance(ends, PackedEnds) else np.frombuffer(ends, np.uint32),
            view(self.data_lens),
            np.repeat(np.frombuffer(self.ts_values, np.int64), lengths),
            meta_lens=view(self.meta_lens),
            names=tuple([names.view() for names in self.names]) or NO_NAMES,
            hops=None if self.hops is None else np.frombuffer(self.hops, np.uint8),
        )


@dataclass(slots=True)
class SealedAt:
    """Where a sealed run lies: the segment file, and which deletions its flags do not show yet."""

    segment: int
    # Indexes deleted since the last snapshot but one; see the checkpoint for why flips wait.
    unflipped: "array[int]"


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """`dead[i]` is 1 when record i was deleted. What lies below the topic's floor is dead without a mark.

    The marks of a run in memory are in memory as well; those of any other are loaded with its columns.
    """

    topic_id: int
    base: int
    hot: HotColumns | None
    # No frame of this run lies below this journal position: what must be kept until it is sealed.
    start_position: int = 0
    # Records of class ephemeral are never sealed.
    ephemeral: bool = False
    # Append or Route frames have all its records, so that routers may refer to them in theirs.
    framed: bool = True
    count: int = 0
    live_count: int = 0
    live_bytes: int = 0
    first_ts: int = 0
    last_ts: int = 0
    dead: bytearray | None = None
    dead_count: int = 0
    sealed: SealedAt | None = None
    # Its segment is being written: it does not grow any more, and is not sealed yet.
    frozen: bool = False

    @property
    def last(self) -> int:
        return self.base + self.count - 1

    def place(self) -> tuple[int, int]:
        """To take runs of a set in an order that does not depend on where they lie in memory."""
        return self.topic_id, self.base

    # --- growing ----------------------------------------------------------------------------------------

    def extend(self, rows: AnyRows, times: Times | None = None) -> int:
        """Add encoded records; return by how much the weight in memory has grown."""
        hot = self.hot
        assert hot is not None
        added = hot.extend(rows, times)
        if not self.count:
            self.first_ts = rows.ts
        self.last_ts = times[-1][1] if times else rows.ts
        self.count += rows.count
        self.live_count += rows.count
        self.live_bytes += rows.size
        if self.dead is not None:
            self.dead.extend(bytes(rows.count))
        return added

    def cut(self, count: int) -> int:
        """Forget everything from index `count` on (records whose commit failed); returns its weight."""
        assert self.hot is not None
        if count < self.count:
            self.live_bytes -= self.hot.size_between(count, self.count)
            self.live_count -= self.count - count
            self.count = count
            if self.dead is not None:
                del self.dead[count:]
            if count:
                self.last_ts = self.hot.ts_at(count - 1)
        return self.hot.truncate(count)

    def fill(self, columns: Columns, count: int, dead: bytearray | None, floor: int) -> None:
        """It has the first `count` records of other columns, in memory until it is sealed."""
        self.hot = HotColumns.beginning(columns, count)
        self.count = count
        self.first_ts, self.last_ts = int(columns.ts[0]), int(columns.ts[count - 1])
        self.restore_marks(None if dead is None else dead[:count], floor)

    def depend_on(self, position: int) -> None:
        """A frame that it has records from lies below those it had them from so far."""
        self.start_position = min(self.start_position, position)

    # --- deletions --------------------------------------------------------------------------------------

    def first_live_index(self, start: int) -> int:
        """Index of the first record at or after `start` that is not deleted; `count` when there is none."""
        if self.dead is None:
            return start
        found = self.dead.find(0, start)
        return self.count if found < 0 else found

    def live_between(self, start: int, stop: int) -> int:
        return stop - start if self.dead is None else self.dead.count(0, start, stop)

    def live_sizes(self, columns: Columns, start: int, stop: int) -> I64:
        """Sizes of the records in a stretch, deleted ones counting nothing."""
        sizes = columns.sizes(start, stop)
        if self.dead is not None:
            sizes[np.frombuffer(self.dead, np.uint8)[start:stop] != 0] = 0
        return sizes

    def unmarked(self, indexes: I64) -> I64:
        """Those of the records that are not deleted; the run's marks are loaded."""
        return indexes if self.dead is None else indexes[np.frombuffer(self.dead, np.uint8)[indexes] == 0]

    def delete(self, indexes: I64 | U32, size: int) -> None:
        """Mark live records deleted, which count for so much. Marks that are not loaded stay in the file."""
        if self.dead is None and not self.dead_count:
            self.dead = bytearray(self.count)
        if self.dead is not None:
            np.frombuffer(self.dead, np.uint8)[indexes] = 1
        self.dead_count += len(indexes)
        self.live_count -= len(indexes)
        self.live_bytes -= size
        if self.sealed is not None:
            self.sealed.unflipped.frombytes(indexes.astype(np.uint32, copy=False).tobytes())

    def live_in(self, start: int, stop: int, load: "Callable[[Run], Columns]") -> tuple[int, int]:
        """How many of these records are live, and their size; none is in front of them."""
        if stop == self.count or not self.live_count:
            return self.live_count, self.live_bytes
        if self.hot is not None and self.dead is None:
            return stop - start, self.hot.size_between(start, stop)
        columns = load(self)
        return self.live_between(start, stop), int(self.live_sizes(columns, start, stop).sum())

    def remove_between(self, start: int, stop: int, load: "Callable[[Run], Columns]") -> tuple[int, int]:
        """The floor passes these records; returns how many of them were live, and their size."""
        count, size = self.live_in(start, stop, load)
        self.live_count -= count
        self.live_bytes -= size
        return count, size

    def restore_marks(self, dead: bytearray | None, floor: int) -> None:
        """Of a run in memory: which of its records are deleted, and so what is live from the floor on."""
        assert self.hot is not None
        self.dead, self.dead_count = dead, 0 if dead is None else dead.count(1)
        start = min(max(floor - self.base, 0), self.count)
        self.live_count = self.live_between(start, self.count)
        self.live_bytes = int(self.live_sizes(self.hot.view(), start, self.count).sum())

    def load_marks(self, flags: U8) -> bool:
        """From the flags in its file; False if they do not show as many deletions as there were."""
        if not self.dead_count or self.dead is not None:
            return True
        assert self.sealed is not None
        marks = (flags == DEAD).astype(np.uint8)
        if self.sealed.unflipped:
            marks[np.frombuffer(self.sealed.unflipped, np.uint32)] = 1
        if int(marks.sum()) != self.dead_count:
            return False
        self.dead = bytearray(marks.tobytes())
        return True

    def unload_marks(self) -> None:
        """They will be loaded from the file again, unless the run is in memory."""
        if self.hot is None:
            self.dead = None

    # --- sealing ----------------------------------------------------------------------------------------

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False

    def seal(self, segment: int, unflipped: "array[int]") -> None:
        """A file has the run from now on, with flags that lack only the given deletions."""
        self.sealed = SealedAt(segment, unflipped)

    def leave_memory(self) -> None:
        """Its file answers for it; its deletions are in there, or in its list of unflipped ones."""
        self.hot = self.dead = None

    def release(self) -> int:
        """No record of it is live any more: nothing is kept. Returns the file that had it, or 0."""
        segment = 0 if self.sealed is None else self.sealed.segment
        self.hot = self.dead = self.sealed = None
        return segment

    # --- snapshots --------------------------------------------------------------------------------------

    def capture(self) -> RunState:
        return RunState(
            self.base,
            self.count,
            0 if self.sealed is None else self.sealed.segment,
            self.first_ts,
            self.last_ts,
            self.live_count,
            self.live_bytes,
            self.dead_count,
            b"" if self.sealed is None else self.sealed.unflipped.tobytes(),
        )

    def renumber(self, topic_id: int) -> None:
        """Its topic has got another id."""
        self.topic_id = topic_id


class Unsealed:
    """Runs that no segment has yet, and only the journal holds, in the order in which they began.

    A checkpoint asks here which runs are full and which have waited too long, so that its work follows what
    is new and not what exists. Runs of class ephemeral are never sealed and never listed.
    """

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
        # The condition of `has_reached_limit`, without a call: every append comes here.
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
            weight = run.hot.weight
            self.bytes -= weight
            self.left_bytes += weight
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

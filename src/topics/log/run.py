"""A run: consecutive records of one topic, in memory, in a sealed segment, or both.

Seqs inside a run are dense, so a record is found by subtraction. Nothing survives per record in memory but
its bytes and a few integers in flat arrays; a run that is sealed and no longer hot keeps only its counters.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from topics.log.hot_columns import HotColumns
from topics.log.seal.snapshot_state import RunState
from topics.log.write.batch import Batch
from topics.storage.columns import I64, U8, U32, Columns
from topics.storage.segment import DEAD


@dataclass(slots=True)
class SealedAt:
    """Where a sealed run lies: the segment file, and which deletions its flags do not show yet."""

    segment: int
    # Indexes deleted since the last snapshot but one; see the checkpoint for why flips wait.
    unflipped: array[int]


class Run:
    """`dead[i]` is 1 when record i was deleted. What lies below the topic's floor is dead without a mark.

    The marks of a run in memory are in memory as well; those of any other are loaded with its columns.
    """

    __slots__ = (
        "base",
        "count",
        "dead",
        "dead_count",
        "ephemeral",
        "first_ts",
        "framed",
        "frozen",
        "hot",
        "last_ts",
        "live_bytes",
        "live_count",
        "sealed",
        "start_position",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: int,
        base: int,
        hot: HotColumns | None,
        *,
        start_position: int = 0,
        ephemeral: bool = False,
        framed: bool = True,
    ) -> None:
        self.topic_id = topic_id
        self.base = base
        # No frame of this run lies below this journal position: what must be kept until it is sealed.
        self.start_position = start_position
        # Records of class ephemeral are never sealed.
        self.ephemeral = ephemeral
        # Append or Route frames have all its records, so that routers may refer to them in theirs.
        self.framed = framed
        self.count = 0
        self.live_count = 0
        self.live_bytes = 0
        self.first_ts = 0
        self.last_ts = 0
        self.dead: bytearray | None = None
        self.dead_count = 0
        self.hot = hot
        self.sealed: SealedAt | None = None
        # Its segment is being written: it does not grow any more, and is not sealed yet.
        self.frozen = False

    @property
    def last(self) -> int:
        return self.base + self.count - 1

    def place(self) -> tuple[int, int]:
        """To take runs of a set in an order that does not depend on where they lie in memory."""
        return self.topic_id, self.base

    # --- growing ----------------------------------------------------------------------------------------

    def extend(self, batch: Batch, rows: bytes, ts: int, hops: bytes | None = None) -> int:
        """Returns by how much its weight in memory has grown."""
        assert self.hot is not None
        added = self.hot.extend(batch, rows, ts, hops)
        if not self.count:
            self.first_ts = ts
        self.last_ts = ts
        self.count += batch.count
        self.live_count += batch.count
        self.live_bytes += batch.size
        if self.dead is not None:
            self.dead.extend(bytes(batch.count))
        return added

    def restamp(self, first: int, times: list[tuple[int, int]]) -> None:
        """The records from index `first` on, which are the last, were written at several times.

        `times` says from which of them on which one holds; the first is what they were added with.
        """
        assert self.hot is not None
        for at, ts in times[1:]:
            self.hot.ts_starts.append(first + at)
            self.hot.ts_values.append(ts)
        self.last_ts = times[-1][1]

    def cut(self, count: int) -> int:
        """Forget everything from index `count` on (records whose commit failed); returns its weight."""
        assert self.hot is not None
        if count < self.count:
            self.live_bytes -= self.hot.size_between(count, self.count)
            self.live_count -= self.count - count
            self.count = count
            if self.dead is not None:
                del self.dead[count:]
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

    def remove_between(self, start: int, stop: int, load: Callable[[Run], Columns]) -> tuple[int, int]:
        """The floor passes these records; returns how many of them were live, and their size."""
        if stop == self.count or not self.live_count:
            count, size = self.live_count, self.live_bytes
        elif self.hot is not None and self.dead is None:
            count, size = stop - start, self.hot.size_between(start, stop)
        else:
            columns = load(self)
            count = self.live_between(start, stop)
            size = int(self.live_sizes(columns, start, stop).sum())
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

    def seal(self, segment: int, unflipped: array[int]) -> None:
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

    def restore(self, state: RunState) -> None:
        """As it was captured, but for where it is sealed."""
        self.count = state.count
        self.first_ts, self.last_ts = state.first_ts, state.last_ts
        self.live_count, self.live_bytes = state.live_count, state.live_bytes
        self.dead_count = state.dead_count

    def renumber(self, topic_id: int) -> None:
        """Its topic has got another id."""
        self.topic_id = topic_id

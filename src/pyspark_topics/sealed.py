"""Sealed segments read where they lie, without the server moving a byte of them: a task's side.

Imports numpy and the formats on disk: import this module late, the driver does without.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_topics.partitions import ScanFilter, SealedRun, SeqRange
from pyspark_topics.rows import ReadSchema
from topics.core.record_fields import FIELDS
from topics.storage.arrow_columns import record_batch
from topics.storage.columns import I64, Columns
from topics.storage.filesystem import File, Filesystem
from topics.storage.segment import DEAD, Place, RunEntry, Segment, SegmentDamaged

# Large enough that a batch's own cost does not show, small enough to stay in the processor's caches.
BATCH_RECORDS = 32_768
_TEXT = ("rows", "ends", "data_lens", "meta_lens")
_MADE_OF = {
    "seq": ("ends",),
    "ts": ("ts",),
    **{field.name: (f"{field.name}_codes", f"{field.name}s") for field in FIELDS},
    "data": _TEXT,
    "meta": _TEXT,
}


class _ReadOnly(Filesystem):
    """Readers need no more, and may have no more."""

    def open(self, path: str) -> File:
        return File(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


@dataclass
class SegmentReader:
    """One task's view of the files. Ranges come in order, so mostly the file that is open is the next one."""

    schema: ReadSchema
    filter: ScanFilter

    def __post_init__(self) -> None:
        self._open: Segment | None = None

    def can_read(self, wanted: SeqRange) -> bool:
        """False where the file is out of sight, is not the one that was meant, or is damaged."""
        run = wanted.run
        if run is None or self.filter.nodes or self.filter.tag is not None:
            return False  # what readers filter by node or tag, the server skips without touching it
        try:
            entry = self._segment(run).entry(run.topic_id, run.base)
            if (entry.count, entry.first_ts, entry.last_ts) != (run.count, run.first_ts, run.last_ts):
                return False  # the same path on another machine
            self._segment(run).verify(msgspec.structs.replace(entry, columns=self._needed(entry)))
        except (OSError, SegmentDamaged):
            return False
        return True

    def _needed(self, entry: RunEntry) -> dict[str, Place]:
        """The stored columns that the wanted ones are made of: nothing else of the file is touched."""
        needed = {"ts", *(part for name in self.schema.stored for part in _MADE_OF[name])}
        return {name: location for name, location in entry.columns.items() if name in needed}

    def read(self, wanted: SeqRange) -> Iterator[pa.RecordBatch]:
        run = wanted.run
        assert run is not None
        segment = self._segment(run)
        entry = segment.entry(run.topic_id, run.base)
        columns = segment.columns(entry)
        start, stop = wanted.start.seq + 1 - run.base, wanted.to_seq + 1 - run.base
        start, stop = self._in_time(columns, start, stop)
        alive = segment.flags(entry) != DEAD
        alive[np.frombuffer(run.dead, np.uint32)] = False
        for first in range(start, stop, BATCH_RECORDS):
            last = min(first + BATCH_RECORDS, stop)
            chosen: I64 = np.flatnonzero(alive[first:last]) + first
            if len(chosen):
                batch = record_batch(columns, chosen, self.schema.stored)
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield self.schema.records(wanted.topic, len(chosen), found)

    def _in_time(self, columns: Columns, start: int, stop: int) -> tuple[int, int]:
        if self.filter.since_ts is not None:
            start = max(start, int(np.searchsorted(columns.ts, self.filter.since_ts)))
        if self.filter.until_ts is not None:
            stop = min(stop, int(np.searchsorted(columns.ts, self.filter.until_ts)))
        return start, stop

    def _segment(self, run: SealedRun) -> Segment:
        if self._open is None or self._open.path != run.path:
            self.close()
            self._open = Segment(_ReadOnly(), run.path)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

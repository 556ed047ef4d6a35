"""Sealed segments read where they lie, without the server moving a byte of them.

    driver:    manifest of a topic → its ranges cut along the runs of sealed files
    executor:  file seen and the one that was meant → records; anything else → the same range over HTTP

The manifest is one snapshot: the lines, the epoch, the files, and which deletions the files do not show yet.
Flags in a file may be newer than that, never older. The server keeps the files for a while; one that is gone
all the same is no loss by itself, because HTTP then tells what became of its records.
"""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_topics.offsets import Position
from pyspark_topics.partitions import Pin, SealedRun, SeqRange
from pyspark_topics.scan import ScanFilter
from pyspark_topics.schema import ReadSchema
from topics.client import Client, Refused, TopicsError
from topics.storage.arrow_columns import record_batch
from topics.storage.columns import I64, Columns
from topics.storage.filesystem import File, Filesystem
from topics.storage.segment import DEAD, Place, RunEntry, Segment, SegmentDamaged

# Below this a manifest costs more than it saves.
SMALLEST_READ = 20_000
# Large enough that a batch's own cost does not show, small enough to stay in the processor's caches.
BATCH_RECORDS = 32_768
# Of the lease: early enough for a second attempt, should the server be busy or restarting.
RENEW_AFTER = 0.3
_TEXT = ("rows", "ends", "data_lens", "meta_lens")
_MADE_OF = {
    "seq": ("ends",),
    "ts": ("ts",),
    "node": ("node_codes", "nodes"),
    "tag": ("tag_codes", "tags"),
    "data": _TEXT,
    "meta": _TEXT,
}


@dataclass
class SealedFiles:
    """The driver's side: where sealed records lie. The server keeps what was named until its lease ends."""

    client: Client

    def __post_init__(self) -> None:
        self._pinned: list[tuple[str, str]] = []

    def along(self, ranges: list[SeqRange]) -> list[SeqRange]:
        """The same ranges, cut so that sealed stretches know their file."""
        return [piece for one in ranges for piece in self._cut(one)]

    def _cut(self, wanted: SeqRange) -> list[SeqRange]:
        if wanted.weight < SMALLEST_READ:
            return [wanted]
        try:
            manifest = self.client.segments(wanted.topic)
        except Refused:
            # A key for some topics only may not see files, which hold others, too. Or the topic is gone.
            return [wanted]
        self._pinned.append((wanted.topic, manifest["snapshot"]))
        return list(_cut(wanted, manifest)) if manifest["epoch"] == wanted.epoch else [wanted]

    def release(self) -> None:
        """All reads that were planned are over. A lease that is not given back runs out by itself."""
        pinned, self._pinned = self._pinned, []
        with suppress(TopicsError):
            for topic, snapshot in pinned:
                self.client.release_segments(topic, snapshot)


def _cut(wanted: SeqRange, manifest: dict[str, Any]) -> Iterator[SeqRange]:
    at = wanted.start
    live_from = manifest["earliest_seq"]
    if not at.leads_to(Position(wanted.to_seq, wanted.epoch)) or at.seq + 1 < manifest["loss_line"]:
        # What is announced to this cursor before its first record; no record lies there.
        end = min(live_from - 1, wanted.to_seq)
        yield SeqRange(wanted.topic, at, end, wanted.epoch)
        at = Position(end, wanted.epoch)
    at = Position(max(at.seq, min(live_from - 1, wanted.to_seq)), wanted.epoch)
    for run in manifest["runs"]:
        first, last = run["base"], min(run["base"] + run["count"] - 1, wanted.to_seq)
        if last <= at.seq:
            continue
        if first > wanted.to_seq:
            break
        if first > at.seq + 1:  # holes, and whatever else is not in a file
            yield _piece(wanted, at.seq, first - 1, None)
            at = Position(first - 1, wanted.epoch)
        yield _piece(wanted, at.seq, last, _sealed(manifest, run))
        at = Position(last, wanted.epoch)
    if at.seq < wanted.to_seq:
        yield _piece(wanted, at.seq, wanted.to_seq, None)


def _piece(wanted: SeqRange, from_seq: int, to_seq: int, run: SealedRun | None) -> SeqRange:
    start = Position(from_seq, wanted.epoch)
    return SeqRange(wanted.topic, start, to_seq, wanted.epoch, to_seq - from_seq, run)


def _sealed(manifest: dict[str, Any], run: dict[str, Any]) -> SealedRun:
    return SealedRun(
        os.path.join(manifest["data_dir"], run["path"]),
        run["topic_id"],
        run["base"],
        run["count"],
        run["first_ts"],
        run["last_ts"],
        base64.b64decode(run["dead"]),
        Pin(manifest["topic"], manifest["snapshot"], (manifest["expires_ms"] - manifest["now"]) / 1000),
    )


@dataclass
class Renewal:
    """A task's side of the leases: while it reads, the files it still has to open stay where they are.

    The driver cannot do this, because its part in a batch read ends with the plan. Asked first of all: the
    task does not know how long it had to wait for its turn.
    """

    client: Client
    pins: set[Pin]

    def __post_init__(self) -> None:
        self._due = time.monotonic()

    def keep(self) -> None:
        """Call this often; it asks the server when a good part of the lease is over."""
        if not self.pins or time.monotonic() < self._due:
            return
        for pin in tuple(self.pins):
            try:
                self.client.renew_segments(pin.topic, pin.snapshot)
            except Refused:
                self.pins.discard(pin)  # it has run out: whatever file is gone will be read over HTTP
            except TopicsError:
                pass
        self._due = time.monotonic() + min((pin.lease_s for pin in self.pins), default=0.0) * RENEW_AFTER


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
        return {name: place for name, place in entry.columns.items() if name in needed}

    def read(self, wanted: SeqRange) -> Iterator[pa.RecordBatch]:
        run = wanted.run
        assert run is not None
        segment = self._segment(run)
        entry = segment.entry(run.topic_id, run.base)
        columns = segment.columns(entry)
        start, stop = wanted.start.seq + 1 - run.base, wanted.to_seq + 1 - run.base
        start, stop = self._in_time(columns, start, stop)
        alive = _alive(segment, entry, run)
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


def _alive(segment: Segment, entry: RunEntry, run: SealedRun) -> Any:
    alive = segment.flags(entry) != DEAD
    alive[np.frombuffer(run.dead, np.uint32)] = False
    return alive

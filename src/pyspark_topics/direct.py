"""Sealed segments that are read where they lie: which they are, and that they stay there meanwhile.

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
from dataclasses import dataclass, replace
from typing import Any

from pyspark_topics.offsets import Position
from pyspark_topics.partitions import Pin, SealedRun, SeqRange
from topics.client import Client, Refused, TopicsError

# Below this a manifest costs more than it saves.
SMALLEST_READ = 20_000
# Of the lease: early enough for a second attempt, should the server be busy or restarting.
RENEW_AFTER = 0.3


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
        yield replace(wanted, to_seq=end, weight=0)
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

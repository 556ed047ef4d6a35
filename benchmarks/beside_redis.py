"""What appends have to reach beside Redis Streams, as a multiple of its rate: one list for every area."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.figures import Bar, times_peer
from benchmarks.payloads import COMPACT, NAMED, Shape


class Case(NamedTuple):
    durability: str
    connections: int
    # Records a request.
    batch: int
    shape: Shape = COMPACT

    def __str__(self) -> str:
        what = "single appends" if self.batch == 1 else f"batches of {self.batch}"
        return f"{what}, {self.connections} connections, {self.durability}"


SINGLE, SINGLE_SYNCED = Case("disk", 16, 1), Case("fsync", 64, 1)
BATCHES, BATCHES_SYNCED = Case("disk", 16, 100), Case("fsync", 16, 100)
NAMED_SINGLE, NAMED_BATCHES = Case("disk", 16, 1, NAMED), Case("disk", 16, 100, NAMED)

BARS: Mapping[Case, Bar] = {
    SINGLE: times_peer(1.0, python_codec=0.75),
    SINGLE_SYNCED: times_peer(1.2, python_codec=1.0),
    BATCHES: times_peer(2.4, python_codec=1.7),
    NAMED_BATCHES: times_peer(1.6, python_codec=1.0),
    # Older than the others, and nobody has asked for more since: syncs are most of it, for both.
    BATCHES_SYNCED: times_peer(1.5),
}

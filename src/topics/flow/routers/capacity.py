"""How much of what routers bring a destination can take right now."""

from dataclasses import dataclass

import numpy as np

from topics.log import Batch, Engine, Topic
from topics.storage import I64, Records
from topics.values import MAX_SEQ

UNLIMITED = 1 << 62


@dataclass(slots=True)
class Capacity:
    """What a destination can still take. Only a topic that rejects, or a full server, sets bounds."""

    records: int
    size: int
    # Bytes that it could take were it empty.
    when_empty: int = UNLIMITED

    def take(self, sizes: I64) -> int:
        """How many of these fit, from the front; they are taken as used."""
        used = np.cumsum(sizes)
        fitting = max(min(int(np.searchsorted(used, self.size, side="right")), self.records), 0)
        fitting = min(fitting, len(sizes))
        if fitting:
            self.records -= fitting
            self.size -= int(used[fitting - 1])
        return fitting

    def is_full(self, wanted_bytes: int) -> bool:
        """Whether a record of that size has to wait; one that can never fit waits for an empty topic."""
        return self.records < 1 or self.size < min(wanted_bytes, self.when_empty)


def is_bounded(engine: Engine, dest: Topic) -> bool:
    """Whether there is anything to ask; most destinations take whatever comes."""
    config = dest.config
    return (
        (config.discard == "reject" and bool(config.cap_records or config.cap_bytes))
        or engine.settings.max_total_bytes > 0
        or dest.assigned > MAX_SEQ >> 1
    )


def capacity_of(engine: Engine, dest: Topic) -> Capacity:
    """Counted like an ordinary write: what is on its way to disk takes room as well."""
    config = dest.config
    records, size, when_empty = MAX_SEQ - dest.assigned, UNLIMITED, UNLIMITED
    if config.discard == "reject":
        if config.cap_records:
            records = min(records, config.cap_records - dest.live_count - dest.pending_count)
        if config.cap_bytes:
            when_empty = config.cap_bytes
            size = when_empty - dest.live_bytes - dest.pending_bytes
    limit = engine.settings.max_total_bytes
    if limit:
        size = min(size, limit - engine.totals.bytes - engine.totals.pending_bytes)
        when_empty = min(when_empty, limit)
    return Capacity(records, size, when_empty)


def row_sizes(rows: Records) -> I64:
    """What copies without a stamp count for."""
    sizes = np.array([len(value) for value in rows.data], np.int64)
    if rows.metas is not None:
        sizes += np.array([0 if meta is None else len(meta) for meta in rows.metas], np.int64)
    return sizes


def batch_sizes(batch: Batch) -> I64:
    sizes = np.array(batch.data_lens, np.int64)
    return sizes if batch.meta_lens is None else sizes + np.array(batch.meta_lens, np.int64)

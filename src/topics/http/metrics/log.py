"""Figures of the log: what left it and who was told, what is sealed, and how much room is left."""

from __future__ import annotations

import os
from collections.abc import Iterator

from topics.http.metrics.family import Family, counter, gauge, labelled
from topics.http.metrics.scrape import Scrape
from topics.log.remove import ledger
from topics.node.node import Node

# Removal nobody asked for.
_EVICTIONS = (ledger.CAP, ledger.TTL, ledger.LOST)


class LogFigures:
    """Until the node runs, nothing is committed or sealed."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine = node.engine

    def families(self, _: Scrape) -> Iterator[Family]:
        yield from self._removals()
        yield from self._seals()
        yield from self._files()
        seconds = self._node.recovery_seconds
        yield gauge("topics_recovery_seconds", "What recovery has taken so far, or took.", seconds)

    def _removals(self) -> Iterator[Family]:
        totals = self._engine.totals
        for unit, removed in (("records", totals.removed_records), ("bytes", totals.removed_bytes)):
            evicted = {ledger.KIND_NAMES[kind]: removed[kind] for kind in _EVICTIONS}
            text = f"Live {unit} the server itself dropped."
            yield labelled("counter", f"topics_evicted_{unit}_total", text, "cause", evicted)
            text = f"Live {unit} removed by request: deletes, acknowledged jobs, dead letters."
            yield counter(f"topics_deleted_{unit}_total", text, removed[ledger.DELETED])
        text = "Records that went out to readers; the same record counts for each."
        yield labelled("counter", "topics_records_read_total", text, "via", totals.read_records)
        yield labelled(
            "counter",
            "topics_tombstones_served_total",
            "Announcements of loss that went out to readers.",
            "reason",
            totals.tombstones,
        )

    def _seals(self) -> Iterator[Family]:
        running, store = self._node if self._node.is_running else None, self._engine.store
        done = running.checkpointer if running else None
        sealer = done.sealer if done else None
        seconds = running.upkeep.checkpoint_seconds if running else 0.0
        for name, text, value in (
            ("seal_passes", "Checkpoints completed.", done.passes if done else 0),
            ("seal_runs", "Runs of records sealed into segments.", sealer.sealed_runs if sealer else 0),
            ("seal_bytes", "Bytes of records sealed.", sealer.sealed_bytes if sealer else 0),
            ("seal_seconds", "Time spent on checkpoints.", seconds),
            ("segment_cache_hits", "Sealed runs found ready to read.", store.cache_hits),
            ("segment_cache_misses", "Sealed runs read from their file.", store.cache_misses),
            ("segment_cold_reads", "Those of the second tier among them.", store.cold_reads),
        ):
            yield counter(f"topics_{name}_total", text, value)
        unsealed = store.unsealed.bytes
        yield gauge("topics_unsealed_bytes", "Rows that only memory and the journal hold.", unsealed)
        braked = int(running is not None and running.commit.brake.is_on)
        yield gauge("topics_wal_braked", "1 while writers wait for sealing to keep up.", braked)
        hot_bytes = sealer.hot_bytes if sealer else 0
        yield gauge("topics_hot_bytes", "Memory of sealed runs that are readable at once.", hot_bytes)

    def _files(self) -> Iterator[Family]:
        engine = self._engine
        recovered, store = engine.recovered, engine.store
        segments = {"hot": 0, "cold": 0}
        retained = unsynced = 0
        if recovered:
            segments = {"hot": len(store.users) - len(store.cold), "cold": len(store.cold)}
            retained = engine.journal.retained_bytes()
            unsynced = engine.journal.position - engine.journal.synced
        yield labelled("gauge", "topics_segments", "Segment files.", "tier", segments)
        yield gauge("topics_wal_retained_bytes", "Journal that a restart would read.", retained)
        yield gauge("topics_wal_unsynced_bytes", "Journal not yet synced to disk.", unsynced)
        disk = os.statvfs(engine.dirs.root)
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        yield gauge("topics_disk_free_bytes", "Room left where the data is kept.", free)
        yield gauge("topics_disk_size_bytes", "Size of that file system.", size)

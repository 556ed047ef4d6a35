"""Figures of the log: its journal, what left it and who was told, what is sealed, how much room is left."""

import os
from collections.abc import Iterator

from topics.http.metrics.family import Family, counter, gauge, histogram, labelled
from topics.log import Engine
from topics.log.remove import ledger
from topics.node.node import Node

# Removal that no client asked for.
_EVICTIONS = (ledger.CAP, ledger.TTL, ledger.LOST)


def log_families(node: Node) -> Iterator[Family]:
    yield from _removals(node.engine)
    yield from _seals(node)
    yield from _files(node.engine)
    seconds = node.recovery_seconds
    yield gauge("topics_recovery_seconds", "What recovery has taken so far, or took.", seconds)


def journal_families(engine: Engine) -> Iterator[Family]:
    counters = engine.counters
    for name, text, value in (
        ("frames", "Records appended to the journal.", counters.frames),
        ("batches", "Group writes.", counters.batches),
        ("fsyncs", "Syncs.", counters.fsyncs),
        ("bytes_written", "Bytes written.", counters.bytes_written),
        ("rotations", "Journal files closed because they were full.", counters.rotations),
        ("submit_full", "Writes refused because the queue was full.", counters.submit_full),
    ):
        yield counter(f"topics_wal_{name}_total", text, value)
    yield gauge("topics_wal_queue_depth", "Operations not yet committed.", engine.queue_depth)
    yield gauge("topics_wal_queue_depth_peak", "Most operations ever waiting.", counters.queue_depth_peak)
    yield gauge("topics_wal_read_only", "1 when writes are off until restart.", int(engine.read_only))
    yield histogram("topics_wal_fsync_latency_us", "Microseconds per sync.", counters.syncs_us)


def _removals(engine: Engine) -> Iterator[Family]:
    totals = engine.totals
    for unit, removed in (("records", totals.removed_records), ("bytes", totals.removed_bytes)):
        evicted = {ledger.KIND_NAMES[kind]: removed[kind] for kind in _EVICTIONS}
        text = f"Live {unit} the server itself dropped."
        yield labelled("counter", f"topics_evicted_{unit}_total", text, "cause", evicted)
        text = f"Live {unit} removed by request: deletes, acknowledged jobs, dead letters."
        yield counter(f"topics_deleted_{unit}_total", text, removed[ledger.DELETED])
    text = "Records that went out to readers; the same record counts for each."
    yield labelled("counter", "topics_records_read_total", text, "via", totals.read_records)
    text = "Announcements of loss that went out to readers."
    yield labelled("counter", "topics_tombstones_served_total", text, "reason", totals.tombstones)


def _seals(node: Node) -> Iterator[Family]:
    """Until the node runs, nothing is committed or sealed."""
    running, store = node if node.is_running else None, node.engine.store
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


def _files(engine: Engine) -> Iterator[Family]:
    store, journal = engine.store, engine.journal if engine.recovered else None
    cold = len(store.cold) if journal else 0
    segments = {"hot": len(store.users) - cold if journal else 0, "cold": cold}
    yield labelled("gauge", "topics_segments", "Segment files.", "tier", segments)
    retained = journal.retained_bytes() if journal else 0
    yield gauge("topics_wal_retained_bytes", "Journal that a restart would read.", retained)
    unsynced = journal.position - journal.synced if journal else 0
    yield gauge("topics_wal_unsynced_bytes", "Journal not yet synced to disk.", unsynced)
    disk = os.statvfs(engine.dirs.root)
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    yield gauge("topics_disk_free_bytes", "Room left where the data is kept.", free)
    yield gauge("topics_disk_size_bytes", "Size of that file system.", size)

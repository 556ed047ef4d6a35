"""Figures about requests, the process, the flow of records, and the log."""

import asyncio
import math
import os
import platform
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest

import topics
from topics.core import CLASSES, Histogram
from topics.engine.node import Node
from topics.flow.cursors import Cursors
from topics.http.admission.auth import ApiKey
from topics.http.routes.service import Service
from topics.http.server import Server
from topics.log import Engine, Topic
from topics.log.remove import ledger

Sample = tuple[str, float]


class Family:
    """Name, kind, help, and the samples there are right now: what follows the name, and the number."""

    __slots__ = ("help", "kind", "name", "samples")

    def __init__(self, name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        self.name = name
        self.kind = kind
        self.help = text
        self.samples = samples

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, value in self.samples:
            yield f"{self.name}{suffix} {_number(value)}"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, [("", value)])


def counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, [("", value)])


def labelled(kind: str, name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """One series for each value of one label."""
    return Family(name, kind, text, [(labels(**{label: value}), n) for value, n in values.items()])


def histogram(name: str, text: str, measured: Histogram) -> Family:
    return Family(name, "histogram", text, histogram_samples(measured))


def labels(**values: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def histogram_samples(measured: Histogram, **values: str) -> Iterator[Sample]:
    for bound, count in measured.cumulative():
        yield "_bucket" + labels(**values, le=bound), count
    shared = labels(**values) if values else ""
    yield "_sum" + shared, measured.total
    yield "_count" + shared, measured.count


# Topics looked at before others get their turn: about a millisecond.
_SLICE = 2048


class Scrape:
    """One look at all topics. Sums are over all of them; names are only for keys that may know the topic."""

    __slots__ = ("by_class", "key", "known", "queues", "topic_count")

    def __init__(self, key: ApiKey | None) -> None:
        self.key = key
        self.topic_count = 0
        self.by_class: dict[str, int] = dict.fromkeys(CLASSES, 0)
        # The first topics this key may know, and one more than can be shown if there are more.
        self.known: list[Topic] = []
        # Queues, and how many of their jobs are ready, in flight, and given up.
        self.queues: list[tuple[Topic, dict[str, int]]] = []

    @classmethod
    async def of(cls, engine: Engine, key: ApiKey | None, most_known: int) -> "Scrape":
        """There may be a hundred thousand topics, and requests that should not wait for this."""
        scrape = cls(key)
        # Recovery owns the topics until it is done.
        names = list(engine.sorted_names) if engine.recovered else []
        for start in range(0, len(names), _SLICE):
            if start:
                await asyncio.sleep(0)
            scrape._add(engine, names[start : start + _SLICE], most_known)
        return scrape

    def _add(self, engine: Engine, names: list[str], most_known: int) -> None:
        for name in names:
            topic = engine.find(name)
            if topic is None:
                continue  # gone since we began
            config = topic.config
            if config.ttl_ms:
                engine.refresh(topic)
            self.topic_count += 1
            self.by_class[config.durability] += 1
            if config.type == "queue":
                self.queues.append((topic, topic.extension.counters()))
            if len(self.known) <= most_known and self.may_know(name):
                self.known.append(topic)

    def may_know(self, name: str) -> bool:
        return self.key is None or self.key.allows(name)

    def jobs(self, state: str) -> int:
        return sum(counts[state] for _, counts in self.queues)


def request_families(service: Service) -> Iterator[Family]:
    server = service.server
    log, context, load_shedder = server.request_log, server.context, service.node.load_shedder
    yield Family(
        "topics_http_request_duration_seconds",
        "histogram",
        "Time from a complete request to its answer, or to the start of its stream.",
        _durations(server),
    )
    yield histogram(
        "topics_http_long_poll_seconds", "Time that requests waited which had asked to wait.", log.waits
    )
    yield labelled("counter", "topics_http_errors_total", "Requests refused.", "code", log.errors)
    turned_away = context.connection_limit.turned_away
    for name, text, count in (
        ("abandoned", "Requests whose client left before the answer.", log.abandoned_requests),
        ("slow_requests", "Requests logged as slow.", log.slow_requests),
        ("connections_accepted", "Connections accepted.", log.connections),
        ("connections_refused", "Connections turned away because all places were taken.", turned_away),
    ):
        yield counter(f"topics_http_{name}_total", text, count)
    busy = sum(connection.busy for connection in context.connections)
    for name, text, number in (
        ("connections", "Open connections.", context.open_connections),
        ("requests_in_flight", "Requests not yet answered.", busy),
        ("request_bytes", "Bytes of large requests not yet answered.", context.request_room.held),
        ("long_polls", "Reads waiting for a record.", len(service.parked)),
        ("held_writes", "Writes that let readers of higher priority pass.", service.node.scheduler.held),
    ):
        yield gauge(f"topics_http_{name}", text, number)
    text = "How late the event loop ran, sampled many times a second."
    yield histogram("topics_event_loop_lag_seconds", text, load_shedder.lags)
    yield Family("topics_loop_stall_seconds", "gauge", _STALLS, _stalls(server, service.node))
    yield gauge("topics_load_level", "Load shedding: 0 is calm, 4 refuses requests.", load_shedder.level)


_STALLS = (
    "The longest that the event loop was held, by whose request; `upkeep` is no request, and `none` is how "
    "late it ever ran at all."
)


def _stalls(server: Server, node: Node) -> Iterator[Sample]:
    for route in server.routes:
        if route.holds.longest_s:
            yield labels(method=route.method, route=route.template), route.holds.longest_s
    if node.is_running:
        yield labels(method="any", route="upkeep"), node.upkeep.holds.longest_s
    yield labels(method="any", route="none"), node.load_shedder.longest_lag_s


def _durations(server: Server) -> Iterator[Sample]:
    for route in server.routes:
        yield from _by_status(route.timings, method=route.method, route=route.template)
    yield from _by_status(server.request_log.unrouted, method="any", route="none")


def _by_status(timings: tuple[Histogram, ...], **values: str) -> Iterator[Sample]:
    """Only what has been seen: most routes never answer with most statuses."""
    for number, measured in enumerate(timings):
        if any(measured.counts):
            yield from histogram_samples(measured, **values, status=f"{number}xx")


def process_families(started_s: float) -> Iterator[Family]:
    """Under the names every Prometheus client gives them, and what is running."""
    about = labels(version=topics.__version__, python=platform.python_version())
    yield Family("topics_build_info", "gauge", "Always 1; its labels say what is running.", [(about, 1)])
    yield counter("process_cpu_seconds_total", "CPU time used.", time.process_time())
    yield gauge("process_start_time_seconds", "When the process started.", started_s)
    with open("/proc/self/statm", "rb") as file:
        virtual, resident = file.read().split()[:2]
    for name, pages in (("resident", resident), ("virtual", virtual)):
        size = int(pages) * os.sysconf("SC_PAGE_SIZE")
        yield gauge(f"process_{name}_memory_bytes", f"Memory, {name}.", size)
    # One of them is the directory being read.
    yield gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")) - 1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield gauge("process_max_fds", "As many may be open.", most)


# There may be thousands of routers and cursors. Those furthest behind are named, the rest is in the maximum.
MAX_NAMED = 100

_Lag = tuple[int, dict[str, str]]


def flow_families(node: Node, scrape: Scrape) -> Iterator[Family]:
    """Maxima are over everything; names are shown only to a key that may know them."""
    yield from _router_families(node, scrape)
    yield from _consumer_families(node, scrape)
    yield from _stage_families(node)
    for name, text in (
        ("ready", "Jobs that can be claimed, over all queues."),
        ("dead_lettered", "Jobs given up after too many deliveries, over all queues."),
    ):
        yield gauge(f"topics_queue_{name}", text, scrape.jobs(name))


def _router_families(node: Node, scrape: Scrape) -> Iterator[Family]:
    # Recovery owns routers, cursors and topics until it is done.
    routers = list(node.routers.table.by_id.values()) if node.engine.recovered else []
    blocked = sum(router.is_blocked for router in routers)
    yield gauge("topics_routers_blocked", "Routers whose destination has no room.", blocked)
    lags = [router.source.head - router.cursor for router in routers]
    yield gauge("topics_router_lag_max", "Records the furthest router is behind.", max(lags, default=0))
    named = (
        (lag, {"router": router.name})
        for lag, router in zip(lags, routers, strict=True)
        if scrape.may_know(router.name)
    )
    yield _furthest("topics_router_lag", "Records a router has not looked at yet.", named)


def _consumer_families(node: Node, scrape: Scrape) -> Iterator[Family]:
    cursors = list(node.cursors.everywhere()) if node.engine.recovered else []
    yield gauge("topics_consumers", "Named cursors.", len(cursors))
    text = "Named cursors whose topic is gone."
    yield gauge("topics_consumers_without_topic", text, node.cursors.left_behind)
    lags = [Cursors.lag(topic, cursor) for topic, cursor in cursors]
    yield gauge("topics_consumer_lag_max", "Records the furthest cursor is behind.", max(lags, default=0))
    named = (
        (lag, {"topic": topic.name, "consumer": cursor.consumer})
        for lag, (topic, cursor) in zip(lags, cursors, strict=True)
        if scrape.may_know(topic.name)
    )
    yield _furthest("topics_consumer_lag", "Records a named cursor is behind.", named)


def _stage_families(node: Node) -> Iterator[Family]:
    waiting, remembered = node.stages.open, node.stages.identities
    yield gauge("topics_stages", "Stages with rows that wait for a commit.", waiting.stages)
    yield gauge("topics_stage_parts", "Parts of them.", waiting.parts)
    text = "Applications whose commits are remembered."
    yield gauge("topics_stage_applications", text, remembered.applications)
    text = "Applications whose commits had to be forgotten, because their owner has too many."
    yield counter("topics_stage_applications_forgotten_total", text, remembered.forgotten)


def _furthest(name: str, text: str, lags: Iterable[_Lag]) -> Family:
    shown = nlargest(MAX_NAMED, lags, key=lambda lag: lag[0])
    return Family(name, "gauge", text, [(labels(**values), lag) for lag, values in shown])


# Removal that no client asked for.
_EVICTIONS = (ledger.CAP, ledger.TTL, ledger.LOST)


def log_families(node: Node) -> Iterator[Family]:
    yield from _removals(node.engine)
    yield from _keys(node.engine)
    yield from _seals(node)
    yield from _files(node.engine)
    yield from _room(node)
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


def _keys(engine: Engine) -> Iterator[Family]:
    keys = engine.keys
    yield gauge("topics_idempotency_keys", "Idempotency keys that are remembered.", keys.count)
    text = "Idempotency keys forgotten before their window was over, because there were too many."
    yield counter("topics_idempotency_keys_forgotten_total", text, keys.forgotten)


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


def _room(node: Node) -> Iterator[Family]:
    engine = node.engine
    free, _, size = node.disk.room()
    yield gauge("topics_disk_free_bytes", "Room left where the data is kept.", free)
    yield gauge("topics_disk_size_bytes", "Size of that file system.", size)
    text = "Room kept so that removals succeed on a full disk."
    yield gauge("topics_disk_reserve_bytes", text, node.disk.reserve_bytes)
    text = "When the disk will be full at the rate of the last day; +Inf while it does not fill."
    yield gauge("topics_disk_full_in_seconds", text, node.disk.seconds_until_full())
    text = "How far the times of records run ahead of the clock."
    yield gauge("topics_clock_ahead_seconds", text, engine.clock_lead.ms() / 1000)
    enabled = node.is_running and engine.writes_off is None
    yield gauge("topics_writes_enabled", "1 while writes are taken.", int(enabled))

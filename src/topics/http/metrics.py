"""Metrics, as Prometheus text or as JSON. One list of families is the source of both and of the docs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from topics.http.auth import READ, ApiKey
from topics.http.exchange import Exchange
from topics.http.gate import Gate
from topics.http.routing import Route
from topics.log.commit import Counters
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.values.config import CLASSES

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
# Series per topic stop here; a truncation flag says so.
MAX_TOPICS_SHOWN = 1000

Sample = tuple[str, float]


class Family:
    """One metric: name, kind, help, and the samples it has right now."""

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
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{name}="{escaped}"}}'


class Metrics:
    """Other rooms add what they count: `gauges` are read at each scrape, `more` yields whole families."""

    def __init__(self, engine: Engine, gate: Gate, uptime_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._gate = gate
        self._uptime_ms = uptime_ms
        self.gauges: dict[str, Callable[[], int]] = {
            "routers": _zero,
            "sse_connections": _zero,
            "watch_sessions": _zero,
        }
        self.more: list[Callable[[], Iterable[Family]]] = []

    def routes(self) -> list[Route]:
        return [Route(method="GET", template="/v0/metrics", handler=self.show, scopes=READ, always_open=True)]

    def show(self, exchange: Exchange) -> None:
        if b"application/json" in (exchange.header(b"accept") or b""):
            exchange.reply(msgspec.json.encode(self.as_json()))
            return
        lines = [line for family in self.families(exchange.key) for line in family.lines()]
        exchange.reply(("\n".join(lines) + "\n").encode(), content_type=TEXT)

    # --- what there is to show --------------------------------------------------------------------------

    def _topics(self) -> list[Topic]:
        engine = self._engine
        if not engine.recovered:
            return []  # recovery owns the topics until it is done
        topics = [engine.by_name[name] for name in engine.sorted_names]
        for topic in topics:
            engine.refresh(topic)
        return topics

    def _by_class(self, topics: list[Topic]) -> dict[str, int]:
        counts = dict.fromkeys(CLASSES, 0)
        for topic in topics:
            counts[topic.config.durability] += 1
        return {name: counts[name] for name in CLASSES}

    def _in_flight(self, topics: list[Topic]) -> int:
        now = self._engine.now()
        return sum(queue_counters(topic, now)["in_flight"] for topic in topics if topic.config.is_queue)

    def as_json(self) -> dict[str, Any]:
        topics = self._topics()
        by_class = self._by_class(topics)
        counters = self._engine.counters
        return {
            "topics": len(topics),
            **{f"topics_{name}": count for name, count in by_class.items()},
            "routers": self.gauges["routers"](),
            "records_live": self._engine.totals.records,
            "bytes_live": self._engine.totals.bytes,
            "queue_topics": sum(topic.config.is_queue for topic in topics),
            "queue_leases_in_flight": self._in_flight(topics),
            "sse_connections": self.gauges["sse_connections"](),
            "watch_sessions": self.gauges["watch_sessions"](),
            "ready": self._gate.open,
            "replay_progress": self._gate.replay_progress(),
            "uptime_ms": self._uptime_ms(),
            "wal": {
                "fsyncs": counters.fsyncs,
                "frames": counters.frames,
                "batches": counters.batches,
                "bytes_written": counters.bytes_written,
                "rotations": counters.rotations,
                "queue_depth": self._engine.queue_depth,
                "queue_depth_peak": counters.queue_depth_peak,
                "submit_full_total": counters.submit_full,
                "read_only": self._engine.read_only,
                "fsync_count": counters.fsyncs,
                "fsync_micros_total": counters.fsync_micros_total,
            },
        }

    def families(self, key: ApiKey | None) -> Iterator[Family]:
        """Sums are over everything; topics are named only to a key that may know their names."""
        topics = self._topics()
        yield from self._server_families(topics)
        yield from self._topic_families([t for t in topics if key is None or key.allows(t.name)])
        yield from self._journal_families()
        for more in self.more:
            yield from more()

    def _server_families(self, topics: list[Topic]) -> Iterator[Family]:
        totals = self._engine.totals
        by_class = self._by_class(topics)
        yield gauge("topics_topics", "Topics.", len(topics))
        yield Family(
            "topics_topics_by_class",
            "gauge",
            "Topics per durability class.",
            [(label("class", name), count) for name, count in by_class.items()],
        )
        yield gauge("topics_routers", "Routers.", self.gauges["routers"]())
        yield gauge("topics_records_live", "Live records over all topics.", totals.records)
        yield gauge("topics_bytes_live", "Live payload bytes over all topics.", totals.bytes)
        queues = sum(topic.config.is_queue for topic in topics)
        yield gauge("topics_queue_topics", "Queue topics.", queues)
        yield gauge("topics_queue_leases_in_flight", "Unexpired leases.", self._in_flight(topics))
        yield gauge("topics_sse_connections", "Open streams and sockets.", self.gauges["sse_connections"]())
        yield gauge("topics_watch_sessions", "Watch sessions.", self.gauges["watch_sessions"]())
        yield gauge("topics_ready", "1 when data requests are answered.", int(self._gate.open))
        yield gauge("topics_recovery_progress", "Share of recovery done.", self._gate.replay_progress())
        yield counter("topics_uptime_ms", "Milliseconds since the process started.", self._uptime_ms())
        yield counter(
            "topics_damage_events_total", "Damaged stretches found in files.", self._engine.damage_events
        )

    def _topic_families(self, topics: list[Topic]) -> Iterator[Family]:
        shown = topics[:MAX_TOPICS_SHOWN]
        truncated = int(len(topics) > MAX_TOPICS_SHOWN)
        yield gauge("topics_topic_metrics_truncated", "1 when not every topic is shown.", truncated)
        for name, text, value in _PER_TOPIC:
            samples = [(label("topic", topic.name), value(topic)) for topic in shown]
            yield Family(f"topics_topic_{name}", "gauge", text, samples)
        now = self._engine.now()
        queues = [(t, queue_counters(t, now)) for t in shown if t.config.is_queue]
        for name, text in (("ready", "Claimable jobs."), ("in_flight", "Leased jobs.")):
            samples = [(label("topic", topic.name), counts[name]) for topic, counts in queues]
            yield Family(f"topics_topic_queue_{name}", "gauge", text, samples)

    def _journal_families(self) -> Iterator[Family]:
        counters = self._engine.counters
        for name, text, value in (
            ("frames", "Records appended to the journal.", counters.frames),
            ("batches", "Group writes.", counters.batches),
            ("fsyncs", "Syncs.", counters.fsyncs),
            ("bytes_written", "Bytes written.", counters.bytes_written),
            ("rotations", "Journal files closed because they were full.", counters.rotations),
            ("submit_full", "Writes refused because the queue was full.", counters.submit_full),
        ):
            yield counter(f"topics_wal_{name}_total", text, value)
        yield gauge("topics_wal_queue_depth", "Operations not yet committed.", self._engine.queue_depth)
        yield gauge("topics_wal_queue_depth_peak", "Most operations ever waiting.", counters.queue_depth_peak)
        read_only = int(self._engine.read_only)
        yield gauge("topics_wal_read_only", "1 when writes are off until restart.", read_only)
        yield Family(
            "topics_wal_fsync_latency_us", "histogram", "Microseconds per sync.", _histogram(counters)
        )


_PER_TOPIC: tuple[tuple[str, str, Callable[[Topic], int]], ...] = (
    ("head_seq", "Highest seq.", lambda topic: topic.head),
    ("earliest_seq", "Lowest live seq.", lambda topic: topic.floor),
    ("records_live", "Live records.", lambda topic: topic.live_count),
    ("bytes_live", "Live payload bytes.", lambda topic: topic.live_bytes),
)


def queue_counters(topic: Topic, now: int) -> dict[str, int]:
    counts: dict[str, int] = topic.extension.counters(now)
    return counts


def _histogram(counters: Counters) -> Iterator[Sample]:
    running = 0
    for bound, count in zip((*counters.BUCKETS_US, "+Inf"), counters.fsync_buckets, strict=True):
        running += count
        yield f'_bucket{{le="{bound}"}}', running
    yield "_sum", counters.fsync_micros_total
    yield "_count", counters.fsyncs


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, [("", value)])


def counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, [("", value)])


def _zero() -> int:
    return 0

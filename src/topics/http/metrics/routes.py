"""Metrics, as Prometheus text or as JSON. One list of families is the source of both and of the docs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from topics.http.door.keys import READ
from topics.http.door.readiness import Readiness
from topics.http.metrics.family import Family, counter, gauge, histogram_samples, labelled, labels
from topics.http.metrics.scrape import Scrape
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.log.engine import Engine
from topics.log.topic import Topic

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
# Series per topic stop here; a truncation flag says so.
MAX_TOPICS_SHOWN = 1000


class Metrics:
    """Other rooms add what they count: `gauges` are read at each scrape, `more` yields whole families."""

    def __init__(self, engine: Engine, readiness: Readiness, uptime_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._gate = readiness
        self._uptime_ms = uptime_ms
        self.gauges: dict[str, Callable[[], int]] = {
            "routers": _zero,
            "sse_connections": _zero,
            "watch_sessions": _zero,
        }
        self.more: list[Callable[[Scrape], Iterable[Family]]] = []

    def routes(self) -> list[Route]:
        return [Route(method="GET", template="/v0/metrics", handler=self.show, scopes=READ, always_open=True)]

    async def show(self, exchange: Exchange) -> None:
        scrape = await Scrape.of(self._engine, exchange.key, MAX_TOPICS_SHOWN)
        if b"application/json" in exchange.headers.get(b"accept", b"").lower():
            exchange.reply(msgspec.json.encode(self.as_json(scrape)))
            return
        lines = [line for family in self.families(scrape) for line in family.lines()]
        exchange.reply(("\n".join(lines) + "\n").encode(), content_type=TEXT)

    # --- what there is to show --------------------------------------------------------------------------

    def as_json(self, scrape: Scrape) -> dict[str, Any]:
        counters = self._engine.counters
        return {
            "topics": scrape.topic_count,
            **{f"topics_{name}": count for name, count in scrape.by_class.items()},
            "routers": self.gauges["routers"](),
            "records_live": self._engine.totals.records,
            "bytes_live": self._engine.totals.bytes,
            "queue_topics": len(scrape.queues),
            "queue_leases_in_flight": scrape.jobs("in_flight"),
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
                "fsync_micros_total": int(counters.syncs_us.total),
            },
            # Everything else, series by series, as the text names them.
            "series": {
                family.name + suffix: value
                for family in self._more_families(scrape)
                for suffix, value in family.samples
            },
        }

    def families(self, scrape: Scrape) -> Iterator[Family]:
        yield from self._server_families(scrape)
        yield from self._topic_families(scrape)
        yield from self._journal_families()
        yield from self._more_families(scrape)

    def _more_families(self, scrape: Scrape) -> Iterator[Family]:
        for more in self.more:
            yield from more(scrape)

    def _server_families(self, scrape: Scrape) -> Iterator[Family]:
        totals = self._engine.totals
        yield gauge("topics_topics", "Topics.", scrape.topic_count)
        text = "Topics per durability class."
        yield labelled("gauge", "topics_topics_by_class", text, "class", scrape.by_class)
        yield gauge("topics_routers", "Routers.", self.gauges["routers"]())
        yield gauge("topics_records_live", "Live records over all topics.", totals.records)
        yield gauge("topics_bytes_live", "Live payload bytes over all topics.", totals.bytes)
        yield gauge("topics_queue_topics", "Queue topics.", len(scrape.queues))
        yield gauge("topics_queue_leases_in_flight", "Unexpired leases.", scrape.jobs("in_flight"))
        yield gauge("topics_sse_connections", "Open streams and sockets.", self.gauges["sse_connections"]())
        yield gauge("topics_watch_sessions", "Watch sessions.", self.gauges["watch_sessions"]())
        yield gauge("topics_ready", "1 when data requests are answered.", int(self._gate.open))
        yield gauge("topics_recovery_progress", "Share of recovery done.", self._gate.replay_progress())
        yield counter("topics_uptime_ms", "Milliseconds since the process started.", self._uptime_ms())
        yield counter(
            "topics_damage_events_total", "Damaged stretches found in files.", self._engine.damage_events
        )

    def _topic_families(self, scrape: Scrape) -> Iterator[Family]:
        shown = scrape.known[:MAX_TOPICS_SHOWN]
        truncated = int(len(scrape.known) > MAX_TOPICS_SHOWN)
        yield gauge("topics_topic_metrics_truncated", "1 when not every topic is shown.", truncated)
        for name, text, value in _PER_TOPIC:
            samples = [(labels(topic=topic.name), value(topic)) for topic in shown]
            yield Family(f"topics_topic_{name}", "gauge", text, samples)
        among = set(shown)
        queues = [(topic, counts) for topic, counts in scrape.queues if topic in among]
        for name, text in (("ready", "Claimable jobs."), ("in_flight", "Leased jobs.")):
            samples = [(labels(topic=topic.name), counts[name]) for topic, counts in queues]
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
        syncs = histogram_samples(counters.syncs_us)
        yield Family("topics_wal_fsync_latency_us", "histogram", "Microseconds per sync.", syncs)


_PER_TOPIC: tuple[tuple[str, str, Callable[[Topic], int]], ...] = (
    ("head_seq", "Highest seq.", lambda topic: topic.head),
    ("earliest_seq", "Lowest live seq.", lambda topic: topic.floor),
    ("records_live", "Live records.", lambda topic: topic.live_count),
    ("bytes_live", "Live payload bytes.", lambda topic: topic.live_bytes),
)


def _zero() -> int:
    return 0

"""Metrics, as Prometheus text or as JSON. One list of families is the source of both and of the docs."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from topics.http.admission.auth import READ
from topics.http.exchange import Exchange
from topics.http.metrics.figures import (
    Family,
    Scrape,
    counter,
    flow_families,
    gauge,
    journal_families,
    labelled,
    labels,
    log_families,
    process_families,
    request_families,
)
from topics.http.routes.service import Service, routes
from topics.log import Topic

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
# Series per topic stop here; a truncation flag says so.
MAX_TOPICS_SHOWN = 1000


# Figures that JSON names like the text, but for the prefix.
_PLAIN = (
    "routers",
    "records_live",
    "bytes_live",
    "queue_topics",
    "queue_leases_in_flight",
    "sse_connections",
    "watch_sessions",
)
_WAL_COUNTERS = ("fsyncs", "frames", "batches", "bytes_written", "rotations")


@routes.add("GET", "/v0/metrics", scopes=READ, always_open=True)
async def show(service: Service, exchange: Exchange) -> None:
    scrape = await Scrape.of(service.engine, exchange.key, MAX_TOPICS_SHOWN)
    if b"application/json" in exchange.headers.get(b"accept", b"").lower():
        exchange.reply(msgspec.json.encode(_as_json(service, scrape)))
        return
    lines = [line for family in _families(service, scrape) for line in family.lines()]
    exchange.reply(("\n".join(lines) + "\n").encode(), content_type=TEXT)


def _as_json(service: Service, scrape: Scrape) -> dict[str, Any]:
    main = _series(chain(_server_families(service, scrape), journal_families(service.engine)))
    syncs = service.engine.counters.syncs_us
    return {
        "topics": scrape.topic_count,
        **{f"topics_{name}": count for name, count in scrape.by_class.items()},
        **{name: main[f"topics_{name}"] for name in _PLAIN},
        "ready": service.readiness.open,
        "replay_progress": service.readiness.replay_progress(),
        "uptime_ms": main["topics_uptime_ms"],
        "wal": {
            **{name: main[f"topics_wal_{name}_total"] for name in _WAL_COUNTERS},
            "queue_depth": main["topics_wal_queue_depth"],
            "queue_depth_peak": main["topics_wal_queue_depth_peak"],
            "submit_full_total": main["topics_wal_submit_full_total"],
            "read_only": main["topics_wal_read_only"],
            "fsync_count": main["topics_wal_fsyncs_total"],
            "fsync_micros_total": int(syncs.total),
        },
        # Everything else, series by series, as the text names them.
        "series": _series(_more_families(service, scrape)),
    }


def _series(families: Iterable[Family]) -> dict[str, float]:
    return {family.name + suffix: value for family in families for suffix, value in family.samples}


def _families(service: Service, scrape: Scrape) -> Iterator[Family]:
    yield from _server_families(service, scrape)
    yield from _topic_families(scrape)
    yield from journal_families(service.engine)
    yield from _more_families(service, scrape)


def _more_families(service: Service, scrape: Scrape) -> Iterator[Family]:
    yield from request_families(service)
    yield from log_families(service.node)
    yield from flow_families(service.node, scrape)
    yield from process_families(service.started_ms / 1000)


def _server_families(service: Service, scrape: Scrape) -> Iterator[Family]:
    totals = service.engine.totals
    yield gauge("topics_topics", "Topics.", scrape.topic_count)
    text = "Topics per durability class."
    yield labelled("gauge", "topics_topics_by_class", text, "class", scrape.by_class)
    yield gauge("topics_routers", "Routers.", len(service.node.routers.table))
    yield gauge("topics_records_live", "Live records over all topics.", totals.records)
    yield gauge("topics_bytes_live", "Live payload bytes over all topics.", totals.bytes)
    yield gauge("topics_queue_topics", "Queue topics.", len(scrape.queues))
    yield gauge("topics_queue_leases_in_flight", "Unexpired leases.", scrape.jobs("in_flight"))
    yield gauge("topics_sse_connections", "Open streams and sockets.", service.streams.taken)
    yield gauge("topics_watch_sessions", "Watch sessions.", len(service.sessions))
    yield gauge("topics_ready", "1 when data requests are answered.", int(service.readiness.open))
    yield gauge("topics_recovery_progress", "Share of recovery done.", service.readiness.replay_progress())
    yield counter("topics_uptime_ms", "Milliseconds since the process started.", service.uptime_ms())
    yield counter(
        "topics_damage_events_total", "Damaged stretches found in files.", service.engine.totals.damage
    )


_PER_TOPIC: tuple[tuple[str, str, Callable[[Topic], int]], ...] = (
    ("head_seq", "Highest seq.", lambda topic: topic.head),
    ("earliest_seq", "Lowest live seq.", lambda topic: topic.floor),
    ("records_live", "Live records.", lambda topic: topic.live_count),
    ("bytes_live", "Live payload bytes.", lambda topic: topic.live_bytes),
)


def _topic_families(scrape: Scrape) -> Iterator[Family]:
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

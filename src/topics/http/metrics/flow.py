"""Figures of what moves records on: routers, consumers with a named cursor, queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest

from topics.flow.cursors import Cursors
from topics.http.metrics.family import Family, Sample, gauge, labels
from topics.http.metrics.scrape import Scrape
from topics.node.node import Node

# There may be thousands of routers and cursors. Those furthest behind are named, the rest is in the maximum.
MAX_NAMED = 100

_Lag = tuple[int, dict[str, str]]


class FlowFigures:
    def __init__(self, node: Node) -> None:
        self._engine = node.engine
        self._routers = node.routers
        self._cursors = node.cursors

    def families(self, scrape: Scrape) -> Iterator[Family]:
        """Maxima are over everything; names are shown only to a key that may know them."""
        yield from self._router_families(scrape)
        yield from self._consumer_families(scrape)
        for name, text in (
            ("ready", "Jobs that can be claimed, over all queues."),
            ("dead_lettered", "Jobs given up after too many deliveries, over all queues."),
        ):
            yield gauge(f"topics_queue_{name}", text, scrape.jobs(name))

    def _router_families(self, scrape: Scrape) -> Iterator[Family]:
        # Recovery owns routers, cursors and topics until it is done.
        routers = list(self._routers.table.by_id.values()) if self._engine.recovered else []
        blocked = sum(router.is_blocked for router in routers)
        yield gauge("topics_routers_blocked", "Routers whose destination has no room.", blocked)
        named: Iterator[_Lag] = (
            (router.source.head - router.cursor, {"router": router.name})
            for router in routers
            if scrape.may_know(router.name)
        )
        furthest = max((router.source.head - router.cursor for router in routers), default=0)
        yield gauge("topics_router_lag_max", "Records the furthest router is behind.", furthest)
        yield _furthest("topics_router_lag", "Records a router has not looked at yet.", named)

    def _consumer_families(self, scrape: Scrape) -> Iterator[Family]:
        cursors = list(self._cursors.everywhere()) if self._engine.recovered else []
        yield gauge("topics_consumers", "Named cursors.", len(cursors))
        lags = [Cursors.lag(topic, cursor) for topic, cursor in cursors]
        yield gauge("topics_consumer_lag_max", "Records the furthest cursor is behind.", max(lags, default=0))
        named: Iterator[_Lag] = (
            (lag, {"topic": topic.name, "consumer": cursor.consumer})
            for lag, (topic, cursor) in zip(lags, cursors, strict=True)
            if scrape.may_know(topic.name)
        )
        yield _furthest("topics_consumer_lag", "Records a named cursor is behind.", named)


def _furthest(name: str, text: str, lags: Iterable[_Lag]) -> Family:
    shown = nlargest(MAX_NAMED, lags, key=lambda lag: lag[0])
    samples: list[Sample] = [(labels(**values), lag) for lag, values in shown]
    return Family(name, "gauge", text, samples)

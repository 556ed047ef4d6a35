"""Figures of what moves records on: routers, consumers with a named cursor, queues."""

from collections.abc import Iterable, Iterator
from heapq import nlargest

from topics.flow.cursors import Cursors
from topics.http.metrics.family import Family, gauge, labels
from topics.http.metrics.scrape import Scrape
from topics.node.node import Node

# There may be thousands of routers and cursors. Those furthest behind are named, the rest is in the maximum.
MAX_NAMED = 100

_Lag = tuple[int, dict[str, str]]


def flow_families(node: Node, scrape: Scrape) -> Iterator[Family]:
    """Maxima are over everything; names are shown only to a key that may know them."""
    yield from _router_families(node, scrape)
    yield from _consumer_families(node, scrape)
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
    lags = [Cursors.lag(topic, cursor) for topic, cursor in cursors]
    yield gauge("topics_consumer_lag_max", "Records the furthest cursor is behind.", max(lags, default=0))
    named = (
        (lag, {"topic": topic.name, "consumer": cursor.consumer})
        for lag, (topic, cursor) in zip(lags, cursors, strict=True)
        if scrape.may_know(topic.name)
    )
    yield _furthest("topics_consumer_lag", "Records a named cursor is behind.", named)


def _furthest(name: str, text: str, lags: Iterable[_Lag]) -> Family:
    shown = nlargest(MAX_NAMED, lags, key=lambda lag: lag[0])
    return Family(name, "gauge", text, [(labels(**values), lag) for lag, values in shown])

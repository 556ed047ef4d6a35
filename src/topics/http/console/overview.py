"""The first screen in one answer: the server, what needs attention, and a page of topics."""

from itertools import islice
from math import isinf
from typing import Any

import topics
from topics.flow.cursors import Cursors
from topics.http.console.attention import Attention
from topics.http.door.keys import ADMIN, READ
from topics.http.routes.info import about_key
from topics.http.routes.paging import PAGING, cursor_after, page_size, start_of_page
from topics.http.routes.service import Service, answer
from topics.http.routes.topics import missing
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.log import Topic, written_ms
from topics.values import invalid

MOST_ROWS = 100
# A page ends here, even if it is short: a word that no name has would otherwise be looked for in all of them.
MOST_LOOKED_AT = 200_000


class OverviewRoutes:
    def __init__(self, service: Service, started_ms: int) -> None:
        self._service = service
        self._engine = service.engine
        self._attention = Attention(service.node)
        self._started_ms = started_ms

    def routes(self) -> list[Route]:
        return [Route("GET", "/v0/overview", self.show, scopes=READ, query=("find", "type", *PAGING))]

    async def show(self, exchange: Exchange) -> None:
        after, prefix = start_of_page(exchange), exchange.query("prefix") or ""
        find, kind = (exchange.query("find") or "").lower(), exchange.query("type")
        if kind not in (None, "log", "queue"):
            raise invalid("type must be log or queue")
        exchange.refuse_misnamed()
        attention = await self._attention.items(exchange.key)
        key, engine = exchange.key, self._engine
        found = (
            topic
            for name in islice(engine.names_after(after, prefix), MOST_LOOKED_AT)
            if find in name.lower()
            and (key is None or key.allows(name))
            and (topic := engine.find(name)) is not None
            and (kind is None or topic.config.type == kind)
        )
        shown = list(islice(found, min(page_size(exchange), MOST_ROWS)))
        body: dict[str, Any] = {
            "server": self._server(exchange),
            "key": about_key(exchange.key),
            **attention,
            "topics": [self._row(topic) for topic in shown],
        }
        if next(found, None) is not None:
            body["next_cursor"] = cursor_after(shown[-1].name)
        answer(exchange, body)

    def _server(self, exchange: Exchange) -> dict[str, Any]:
        node, engine = self._service.node, self._engine
        free, _, size = node.disk.room()
        full_in_s = node.disk.seconds_until_full()
        about: dict[str, Any] = {
            "version": topics.__version__,
            "started_ms": self._started_ms,
            "now_ms": engine.now(),
            "writes": engine.writes_off is None,
            "reason": engine.writes_off,
            "recovery_ms": round(node.recovery_seconds * 1000),
            "disk": {
                "free_bytes": free,
                "size_bytes": size,
                "reserve_bytes": node.disk.reserve_bytes,
                "full_in_ms": None if isinf(full_in_s) else round(full_in_s * 1000),
            },
            "topics": len(engine.sorted_names),
            "routers": len(node.routers.table),
            "records": engine.totals.records,
            "bytes": engine.totals.bytes,
            "damage": engine.totals.damage,
        }
        if exchange.key is None or exchange.key.can(ADMIN):
            about["data_dir"] = engine.dirs.root
        return about

    def _row(self, topic: Topic) -> dict[str, Any]:
        engine = self._engine
        engine.refresh(topic)
        now = engine.now()
        row: dict[str, Any] = {
            "topic": topic.name,
            "type": topic.config.type,
            "durability": topic.config.durability,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
            "count": topic.live_count,
            "bytes": topic.live_bytes,
            **missing(topic),
            "last_write_ts": topic.last_write_ts,
            "lag": None,
        }
        if topic.config.is_queue:
            row["queue"] = topic.extension.counters()
        if self._service.node.cursors.has(topic.name):
            row["lag"] = self._worst_lag(topic, now)
        return row

    def _worst_lag(self, topic: Topic, now: int) -> dict[str, Any] | None:
        """Of all its cursors: the one furthest behind."""
        cursors = self._service.node.cursors.of(topic.name)
        if not cursors:
            return None
        lag, cursor = max(((Cursors.lag(topic, one), one) for one in cursors), key=lambda pair: pair[0])
        next_seq = topic.floor if cursor.epoch != topic.id else cursor.seq + 1
        age = max(now - written_ms(topic, next_seq), 0) if lag else 0
        return {"consumer": cursor.consumer, "records": lag, "ms": age, "cursors": len(cursors)}

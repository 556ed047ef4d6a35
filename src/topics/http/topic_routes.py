"""Topics themselves: create, show, list, delete."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from topics.http.auth import ADMIN, DELETE, READ
from topics.http.exchange import Exchange
from topics.http.routing import Body, Route
from topics.http.service import Service, answer, check_dead_letter
from topics.log.lifecycle import drop_topic, put_topic
from topics.log.topic import Topic
from topics.values.config import DEFAULT_CONFIG, config_to_json, parse_config
from topics.values.errors import invalid
from topics.values.priority import effective_priority

DEFAULT_PAGE, MAX_PAGE = 100, 1000
_NUMBER = re.compile(r"[+-]?[0-9]+")


class TopicRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine

    def routes(self) -> list[Route]:
        one = "/v0/topics/:topic"
        return [
            Route(method="GET", template="/v0/topics", handler=self.list, scopes=READ),
            Route(method="PUT", template=one, handler=self.put, scopes=ADMIN, body=Body.OPTIONAL),
            Route(method="GET", template=one, handler=self.show, scopes=READ),
            Route(method="DELETE", template=one, handler=self.drop, scopes=DELETE),
        ]

    def put(self, exchange: Exchange) -> None:
        config = parse_config(exchange.body) if exchange.body else DEFAULT_CONFIG
        check_dead_letter(exchange.key, config)
        name = exchange.name

        def done(created: bool) -> None:
            body = {"topic": name, "created": created, "config": config_to_json(config)}
            answer(exchange, body, 201 if created else 200)

        put_topic(self._engine, name, config, done, exchange.fail)

    def show(self, exchange: Exchange) -> None:
        topic = self._service.topic(exchange)
        self._service.pull(topic)
        engine = self._engine
        engine.refresh(topic)
        now = engine.now()
        if exchange.query_flag("touch", True):
            topic.last_read_ts = now
        body: dict[str, Any] = {
            "topic": topic.name,
            "type": topic.config.type,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
            "next_seq": topic.head + 1,
            "count": topic.live_count,
            "bytes": topic.live_bytes,
            "epoch": topic.id,
            "config": config_to_json(topic.config),
            "effective_priority": effective_priority(topic.config, topic.last_read_ts, now),
            "last_write_ts": topic.last_write_ts,
            "last_read_ts": topic.last_read_ts,
        }
        if topic.config.is_queue:
            body["queue"] = topic.extension.counters(now)
        answer(exchange, body)

    def list(self, exchange: Exchange) -> None:
        prefix = exchange.query("prefix") or ""
        size = page_size(exchange)
        touch = exchange.query_flag("touch", False)
        key, engine = exchange.key, self._engine
        now = engine.now()
        entries: list[dict[str, Any]] = []
        more = False
        for name in engine.names_after(decode_cursor(exchange), prefix):
            if key is not None and not key.allows(name):
                continue
            if len(entries) == size:
                more = True
                break
            topic = engine.by_name[name]
            engine.refresh(topic)
            if touch:
                topic.last_read_ts = now
            entries.append(_entry(topic, now))
        body: dict[str, Any] = {"topics": entries}
        if more:
            body["next_cursor"] = encode_cursor(entries[-1]["topic"])
        answer(exchange, body)

    def drop(self, exchange: Exchange) -> None:
        name = exchange.name
        removed = self._service.routers_touching(name)
        topic = self._engine.find(name)
        if topic is not None:
            self._service.pull_from(topic)

        def done(deleted: bool) -> None:
            body = {"topic": name, "deleted": deleted, "routers_removed": removed if deleted else []}
            answer(exchange, body)

        drop_topic(self._engine, name, exchange.query_flag("if_empty", False), done, exchange.fail)


def _entry(topic: Topic, now: int) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "head_seq": topic.head,
        "earliest_seq": topic.floor,
        "count": topic.live_count,
        "bytes": topic.live_bytes,
        "durable": topic.config.durable,
        "effective_priority": effective_priority(topic.config, topic.last_read_ts, now),
    }


def page_size(exchange: Exchange) -> int:
    text = exchange.query("page_size") or ""
    # int() alone would take underscores, spaces and other scripts' digits for numbers too.
    if not _NUMBER.fullmatch(text):
        return DEFAULT_PAGE
    return min(max(int(text[:20]), 1), MAX_PAGE)


def encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(b"after:" + name.encode()).decode().rstrip("=")


def decode_cursor(exchange: Exchange) -> str:
    """The name after which the page starts; empty for the first page."""
    text = exchange.query("cursor")
    if not text:
        return ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        marker, _, name = raw.decode().partition(":")
    except (binascii.Error, ValueError):
        raise invalid("cursor is not one this server gave out") from None
    if marker != "after" or not name:
        raise invalid("cursor is not one this server gave out")
    return name

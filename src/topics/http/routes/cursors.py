"""Named cursors over HTTP: those of one topic, and those of all."""

from itertools import chain
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import ApiError, invalid, topic_not_found
from topics.flow.cursors import Cursors, StoredCursor
from topics.http.admission.auth import READ, WRITE, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import (
    PAGING,
    cursor_after,
    page_size,
    start_of_page,
    unsigned,
    unsigned_or_none,
)
from topics.http.routes.service import Service, answer
from topics.http.routing import Body, Route
from topics.log import Topic

# Between the name of a topic and that of a consumer, in a place in the list. Neither can have it.
_BETWEEN = "/"
# Behind the names of all consumers.
_LAST = "~"
# A page ends here, even if it is short: nobody else is served while it is made.
MOST_LOOKED_AT = 10_000


class CursorBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    seq: int
    epoch: int | UnsetType = UNSET


class CursorRoutes:
    def __init__(self, service: Service, cursors: Cursors) -> None:
        self._service = service
        self._engine = service.engine
        self._cursors = cursors

    def routes(self) -> list[Route]:
        every = "/v0/topics/:topic/cursors"
        one = every + "/:consumer"
        return [
            Route("GET", "/v0/cursors", self.list_everywhere, scopes=READ, query=("consumer", *PAGING)),
            Route("GET", every, self.list, scopes=READ),
            Route("GET", one, self.show, scopes=READ),
            Route("PUT", one, self.put, scopes=WRITE, body=Body.REQUIRED, accepts=CursorBody),
            Route("DELETE", one, self.drop, scopes=WRITE),
        ]

    def list_everywhere(self, exchange: Exchange) -> None:
        topic, between, consumer = start_of_page(exchange).partition(_BETWEEN)
        if topic and not between:
            raise invalid("cursor is not one this server gave out")
        # Only where the key may look: the place at which a page ends is told, and has a name in it.
        only = exchange.query("consumer") or None
        prefixes = _prefixes(exchange.key, exchange.query("prefix") or "")
        found = chain(*(self._cursors.walk(topic, consumer, prefix=one, only=only) for one in prefixes))
        size = page_size(exchange)
        shown: list[dict[str, Any]] = []
        body: dict[str, Any] = {"cursors": shown}
        for looked_at, (name, cursor) in enumerate(found):
            if len(shown) == size or looked_at == MOST_LOOKED_AT:
                body["next_cursor"] = cursor_after(topic + _BETWEEN + consumer)
                break
            topic, consumer = name, _LAST if cursor is None else cursor.consumer
            if cursor is not None:
                shown.append(self._listed(name, cursor))
        answer(exchange, body)

    def _listed(self, name: str, cursor: StoredCursor) -> dict[str, Any]:
        topic = self._engine.find(name)
        if topic is not None:
            self._engine.refresh(topic)
        return {
            "topic": name,
            "consumer": cursor.consumer,
            "epoch": cursor.epoch,
            "seq": cursor.seq,
            "lag": _lag(topic, cursor),
            "age_ms": max(self._engine.now() - cursor.updated_ts, 0),
        }

    def list(self, exchange: Exchange) -> None:
        topic = self._topic_or_none(exchange)
        cursors = [_entry(topic, cursor) for cursor in self._cursors.of(exchange.name)]
        head = None if topic is None else topic.head
        answer(exchange, {"topic": exchange.name, "head_seq": head, "cursors": cursors})

    def show(self, exchange: Exchange) -> None:
        topic = self._topic_or_none(exchange)
        consumer = exchange.params[0]
        cursor = self._cursors.use(exchange.name, consumer)
        if cursor is None:
            raise ApiError("not_found", f'no cursor named "{consumer}"', {"consumer": consumer})
        answer(exchange, {"topic": exchange.name, **_entry(topic, cursor)})

    def put(self, exchange: Exchange, body: CursorBody) -> None:
        seq = unsigned(body.seq, "seq")
        epoch = unsigned_or_none(body.epoch, "epoch")
        topic = self._service.current_topic(exchange)

        def done(cursor: StoredCursor, created: bool) -> None:
            entry = {"topic": topic.name, **_entry(topic, cursor), "created": created}
            answer(exchange, entry, 201 if created else 200)

        self._cursors.put(topic, exchange.params[0], seq, epoch, done, exchange.fail)

    def drop(self, exchange: Exchange) -> None:
        self._topic_or_none(exchange)
        name, consumer = exchange.name, exchange.params[0]

        def done(deleted: bool) -> None:
            answer(exchange, {"topic": name, "consumer": consumer, "deleted": deleted})

        self._cursors.drop(name, consumer, done, exchange.fail)

    def _topic_or_none(self, exchange: Exchange) -> Topic | None:
        """None for a topic that is gone, and has left cursors behind."""
        if self._engine.find(exchange.name) is not None:
            return self._service.current_topic(exchange)
        if not self._cursors.of(exchange.name):
            raise topic_not_found(exchange.name)
        exchange.refuse_unknown_fields()
        return None


def _prefixes(key: ApiKey | None, asked: str) -> list[str]:
    """What the names of topics may begin with that are asked for and shown to this key, in their order."""
    allowed = key.prefixes if key is not None and key.prefixes else ("",)
    both = {max(asked, one) for one in allowed if one.startswith(asked) or asked.startswith(one)}
    return [one for one in sorted(both) if not any(one != other and one.startswith(other) for other in both)]


def _entry(topic: Topic | None, cursor: StoredCursor) -> dict[str, Any]:
    return {
        "consumer": cursor.consumer,
        "seq": cursor.seq,
        "epoch": cursor.epoch,
        "lag": _lag(topic, cursor),
        "updated_ts": cursor.updated_ts,
    }


def _lag(topic: Topic | None, cursor: StoredCursor) -> int | None:
    """Not known of a topic that is gone."""
    return None if topic is None else Cursors.lag(topic, cursor)

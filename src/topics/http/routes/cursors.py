"""Named cursors over HTTP: those of one topic, and those of all."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from topics.flow.cursors import Cursor, Cursors
from topics.http.door.keys import READ, WRITE
from topics.http.routes.fields import decode, unsigned, unsigned_or_none
from topics.http.routes.paging import PAGING, page, start_of_page
from topics.http.routes.service import Service, answer
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log import Topic
from topics.values import ApiError, Form, invalid, topic_not_found

# Between the name of a topic and that of a consumer, in a place in the list. Neither can have it.
_BETWEEN = "/"


class CursorBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    seq: int
    epoch: int | None = None


_cursor = Form(CursorBody)


class _Listed(NamedTuple):
    topic: str
    cursor: Cursor

    @property
    def name(self) -> str:
        return self.topic + _BETWEEN + self.cursor.consumer


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
            Route("PUT", one, self.put, scopes=WRITE, body=Body.REQUIRED),
            Route("DELETE", one, self.drop, scopes=WRITE),
        ]

    def list_everywhere(self, exchange: Exchange) -> None:
        now, engine = self._engine.now(), self._engine

        def entry(listed: _Listed) -> dict[str, Any]:
            topic, cursor = engine.find(listed.topic), listed.cursor
            if topic is not None:
                engine.refresh(topic)
            return {
                "topic": listed.topic,
                "consumer": cursor.consumer,
                "epoch": cursor.epoch,
                "seq": cursor.seq,
                "lag": _lag(topic, cursor),
                "age_ms": max(now - cursor.updated_ts, 0),
            }

        cursors = self._from_page(exchange)
        exchange.refuse_misnamed()
        answer(exchange, page(exchange, "cursors", cursors, entry))

    def _from_page(self, exchange: Exchange) -> Iterator[_Listed]:
        topic, between, consumer = start_of_page(exchange).partition(_BETWEEN)
        if topic and not between:
            raise invalid("cursor is not one this server gave out")
        key = exchange.key
        found = self._cursors.after(
            topic, consumer, prefix=exchange.query("prefix") or "", only=exchange.query("consumer") or None
        )
        return (_Listed(name, cursor) for name, cursor in found if key is None or key.allows(name))

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

    def put(self, exchange: Exchange) -> None:
        body = decode(exchange, _cursor)
        seq = unsigned(body.seq, "seq")
        epoch = unsigned_or_none(body.epoch, "epoch")
        topic = self._service.current_topic(exchange)

        def done(cursor: Cursor, created: bool) -> None:
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
        exchange.refuse_misnamed()
        return None


def _entry(topic: Topic | None, cursor: Cursor) -> dict[str, Any]:
    return {
        "consumer": cursor.consumer,
        "seq": cursor.seq,
        "epoch": cursor.epoch,
        "lag": _lag(topic, cursor),
        "updated_ts": cursor.updated_ts,
    }


def _lag(topic: Topic | None, cursor: Cursor) -> int | None:
    """Not known of a topic that is gone."""
    return None if topic is None else Cursors.lag(topic, cursor)

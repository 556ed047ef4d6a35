"""Named cursors over HTTP."""

from typing import Any

import msgspec

from topics.flow.cursors import Cursor, Cursors
from topics.http.door.keys import READ, WRITE
from topics.http.routes.fields import decode, unsigned, unsigned_or_none
from topics.http.routes.service import Service, answer
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log import Topic
from topics.values import ApiError


class CursorBody(msgspec.Struct, gc=False):
    seq: int
    epoch: int | None = None


_cursor = msgspec.json.Decoder(CursorBody)


class CursorRoutes:
    def __init__(self, service: Service, cursors: Cursors) -> None:
        self._service = service
        self._cursors = cursors

    def routes(self) -> list[Route]:
        every = "/v0/topics/:topic/cursors"
        one = every + "/:consumer"
        return [
            Route("GET", every, self.list, scopes=READ),
            Route("GET", one, self.show, scopes=READ),
            Route("PUT", one, self.put, scopes=WRITE, body=Body.REQUIRED),
            Route("DELETE", one, self.drop, scopes=WRITE),
        ]

    def list(self, exchange: Exchange) -> None:
        topic = self._service.current_topic(exchange)
        cursors = [_entry(topic, cursor) for cursor in self._cursors.all(topic)]
        answer(exchange, {"topic": topic.name, "head_seq": topic.head, "cursors": cursors})

    def show(self, exchange: Exchange) -> None:
        topic = self._service.current_topic(exchange)
        consumer = exchange.params[0]
        cursor = self._cursors.find(topic, consumer)
        if cursor is None:
            raise ApiError("not_found", f'no cursor named "{consumer}"', {"consumer": consumer})
        answer(exchange, {"topic": topic.name, **_entry(topic, cursor)})

    def put(self, exchange: Exchange) -> None:
        body = decode(_cursor, exchange.body)
        seq = unsigned(body.seq, "seq")
        epoch = unsigned_or_none(body.epoch, "epoch")
        topic = self._service.current_topic(exchange)

        def done(cursor: Cursor, created: bool) -> None:
            entry = {"topic": topic.name, **_entry(topic, cursor), "created": created}
            answer(exchange, entry, 201 if created else 200)

        self._cursors.put(topic, exchange.params[0], seq, epoch, done, exchange.fail)

    def drop(self, exchange: Exchange) -> None:
        topic = self._service.current_topic(exchange)
        consumer = exchange.params[0]

        def done(deleted: bool) -> None:
            answer(exchange, {"topic": topic.name, "consumer": consumer, "deleted": deleted})

        self._cursors.drop(topic, consumer, done, exchange.fail)


def _entry(topic: Topic, cursor: Cursor) -> dict[str, Any]:
    return {
        "consumer": cursor.consumer,
        "seq": cursor.seq,
        "epoch": cursor.epoch,
        "lag": Cursors.lag(topic, cursor),
        "updated_ts": cursor.updated_ts,
    }

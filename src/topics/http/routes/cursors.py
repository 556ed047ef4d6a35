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
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Body
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


_EVERY = "/v0/topics/:topic/cursors"
_ONE = _EVERY + "/:consumer"


@routes.add("GET", "/v0/cursors", scopes=READ, query=("consumer", *PAGING))
def list_everywhere(service: Service, exchange: Exchange) -> None:
    topic, between, consumer = start_of_page(exchange).partition(_BETWEEN)
    if topic and not between:
        raise invalid("cursor is not one this server gave out")
    # Only where the key may look: the place at which a page ends is told, and has a name in it.
    only = exchange.query("consumer") or None
    prefixes = _prefixes(exchange.key, exchange.query("prefix") or "")
    found = chain(*(service.node.cursors.walk(topic, consumer, prefix=one, only=only) for one in prefixes))
    size = page_size(exchange)
    shown: list[dict[str, Any]] = []
    body: dict[str, Any] = {"cursors": shown}
    for looked_at, (name, cursor) in enumerate(found):
        if len(shown) == size or looked_at == MOST_LOOKED_AT:
            body["next_cursor"] = cursor_after(topic + _BETWEEN + consumer)
            break
        topic, consumer = name, _LAST if cursor is None else cursor.consumer
        if cursor is not None:
            shown.append(_listed(service, name, cursor))
    answer(exchange, body)


def _listed(service: Service, name: str, cursor: StoredCursor) -> dict[str, Any]:
    topic = service.engine.find(name)
    if topic is not None:
        service.engine.refresh(topic)
    return {
        "topic": name,
        "consumer": cursor.consumer,
        "epoch": cursor.epoch,
        "seq": cursor.seq,
        "lag": _lag(topic, cursor),
        "age_ms": max(service.engine.now() - cursor.updated_ts, 0),
    }


@routes.add("GET", _EVERY, scopes=READ)
def list_cursors(service: Service, exchange: Exchange) -> None:
    topic = _topic_or_none(service, exchange)
    cursors = [_entry(topic, cursor) for cursor in service.node.cursors.of(exchange.name)]
    head = None if topic is None else topic.head
    answer(exchange, {"topic": exchange.name, "head_seq": head, "cursors": cursors})


@routes.add("GET", _ONE, scopes=READ)
def show(service: Service, exchange: Exchange) -> None:
    topic = _topic_or_none(service, exchange)
    consumer = exchange.params[0]
    cursor = service.node.cursors.use(exchange.name, consumer)
    if cursor is None:
        raise ApiError("not_found", f'no cursor named "{consumer}"', {"consumer": consumer})
    answer(exchange, {"topic": exchange.name, **_entry(topic, cursor)})


@routes.add("PUT", _ONE, scopes=WRITE, body=Body.REQUIRED, accepts=CursorBody)
def put(service: Service, exchange: Exchange, body: CursorBody) -> None:
    seq = unsigned(body.seq, "seq")
    epoch = unsigned_or_none(body.epoch, "epoch")
    topic = service.current_topic(exchange)

    def done(cursor: StoredCursor, created: bool) -> None:
        entry = {"topic": topic.name, **_entry(topic, cursor), "created": created}
        answer(exchange, entry, 201 if created else 200)

    service.node.cursors.put(topic, exchange.params[0], seq, epoch, done, exchange.fail)


@routes.add("DELETE", _ONE, scopes=WRITE)
def drop(service: Service, exchange: Exchange) -> None:
    _topic_or_none(service, exchange)
    name, consumer = exchange.name, exchange.params[0]

    def done(deleted: bool) -> None:
        answer(exchange, {"topic": name, "consumer": consumer, "deleted": deleted})

    service.node.cursors.drop(name, consumer, done, exchange.fail)


def _topic_or_none(service: Service, exchange: Exchange) -> Topic | None:
    """None for a topic that is gone, and has left cursors behind."""
    if service.engine.find(exchange.name) is not None:
        return service.current_topic(exchange)
    if not service.node.cursors.of(exchange.name):
        raise topic_not_found(exchange.name)
    exchange.refuse_unknown_fields()
    return None


def _prefixes(key: ApiKey | None, asked: str) -> list[str]:
    """Return the prefixes of topics that are asked for and that the key may know, in their order."""
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

"""Records by GET, for people, browsers and caches: a page of them, or a single one.

A page is the one of `diff`. What the reader leaves out by tag or time it leaves out in silence; loss is told.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from topics.http.door.keys import READ
from topics.http.routes.fields import unsigned, unsigned_or_none
from topics.http.routes.records.diff import DiffBody, Read
from topics.http.routes.service import Service, elapsed_ms, in_turns
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.log import (
    KIND_NAMES,
    Choice,
    Shape,
    TagMatch,
    Topic,
    exact,
    last_steps,
    parse_match,
    passed_over,
    why_missing,
)
from topics.values import MAX_LIMIT, MAX_RECORD_BYTES, ApiError, invalid, topic_not_found

QUERY = (
    "from_seq",
    "epoch",
    "limit",
    "last",
    "since",
    "until",
    "tag",
    "node",
    "include_tags",
    "include_meta",
    "wait_ms",
)
_WITH_TAG = Shape(tags=True)
_array = msgspec.json.Decoder(list[Any])


class RecordRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._admission = service.admission

    def routes(self) -> list[Route]:
        every = "/v0/topics/:topic/records"
        return [
            Route("GET", every, self.list, scopes=READ, query=QUERY, repeatable=("node",)),
            Route("GET", every + "/:seq", self.show, scopes=READ),
        ]

    def list(self, exchange: Exchange) -> None:
        self._admission.read_in_turn(exchange, exchange.name, 0, self._list)

    def _list(self, exchange: Exchange) -> None:
        last = exchange.query_number("last")
        read = _read(exchange, last)
        self._service.topic(exchange)
        topic = self._admission.read(exchange.name)
        if last is None:
            read.answer(self._service, exchange, topic)
        else:
            exchange.run(self._answer_last(exchange, topic, read, min(last, MAX_LIMIT)))

    async def _answer_last(self, exchange: Exchange, topic: Topic, read: Read, last: int) -> None:
        head = topic.head
        position = await in_turns(exact(topic, lambda: last_steps(topic, last, read.nodes, read.choice)))
        if topic.dropped:
            raise topic_not_found(topic.name)
        if read.from_seq < position:
            if exchange.query("from_seq") is not None and read.epoch in (None, topic.id):
                read.owed = passed_over(topic, read.from_seq, position)
            read.from_seq = position
        if exchange.query("limit") is None and topic.head == head:
            # No more than those are wanted behind it: let the cursor pass what is not.
            read.limit = MAX_LIMIT
        read.answer(self._service, exchange, topic)

    def show(self, exchange: Exchange) -> None:
        self._admission.read_copied(exchange, exchange.name, self._show)

    def _show(self, exchange: Exchange) -> None:
        seq = _seq(exchange.params[0])
        self._service.topic(exchange)
        topic = self._admission.read(exchange.name)
        detail: dict[str, Any] = {"topic": topic.name, "seq": seq}
        if not topic.seq_base <= seq <= topic.head:
            raise ApiError("record_not_found", f'"{topic.name}" has no record {seq}', detail)
        page = self._service.engine.read(topic, seq - 1, 1, MAX_RECORD_BYTES, shape=_WITH_TAG, upto=seq)
        topic.totals.served("diff", page.count)
        if not page.count:
            detail["why"] = KIND_NAMES[why_missing(topic, seq)]
            raise ApiError("record_gone", f'record {seq} of "{topic.name}" is gone', detail)
        exchange.reply(
            b'%b"record":%b,"performance":{"server_total_ms":%.3f}}'
            % (topic.opening_json, page.rows[:-1], elapsed_ms(exchange))
        )


def _read(exchange: Exchange, last: int | None) -> Read:
    epoch = exchange.query_number("epoch")
    limit = exchange.query_number("limit")
    body = DiffBody(
        from_seq=exchange.query_number("from_seq") or 0,
        # Those that were asked for, if nothing else was said.
        limit=(last or 0) if limit is None else limit,
        node=exchange.query_all("node") or None,
        include_tags=exchange.query_flag("include_tags", False),
        include_meta=exchange.query_flag("include_meta", True),
        wait_ms=exchange.query_number("wait_ms") or 0,
        epoch=UNSET if epoch is None else epoch,
    )
    return Read(body, choice_of(exchange))


def choice_of(exchange: Exchange) -> Choice | None:
    """None for a reader that wants everything."""
    tag = exchange.query("tag")
    match = None if tag is None else match_of(tag)
    since = unsigned_or_none(exchange.query_number("since"), "since")
    until = unsigned_or_none(exchange.query_number("until"), "until")
    return None if match is None and since is None and until is None else Choice(match, since, until)


def match_of(text: str) -> TagMatch:
    """As in the body of a delete: a tag, the beginning of some, or the array that says which of the two."""
    if text.startswith("["):
        try:
            return parse_match(_array.decode(text))
        except msgspec.DecodeError:
            pass  # a tag may begin like that
    return parse_match(text)


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise invalid("seq must be an unsigned integer")
    return unsigned(int(text[:40]), "seq")

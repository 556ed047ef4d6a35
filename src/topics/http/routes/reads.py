"""Pages of records above a cursor, by `diff` or by GET; single records; and the ledger: why seqs are missing.

GET is for people, browsers and caches. Records that a filter leaves out are not reported; losses are.
"""

import asyncio
from time import perf_counter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from topics import codec
from topics.core import (
    DEFAULT_LIMIT,
    DEFAULT_READ_BYTES,
    MAX_LIMIT,
    MAX_READ_BYTES,
    MAX_RECORD_BYTES,
    MAX_WAIT_MS,
    U64_MAX,
    ApiError,
    invalid,
    topic_not_found,
)
from topics.http.admission.auth import READ, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import (
    clamped,
    cursor_after,
    node_set,
    page_size,
    seq_at_start_of_page,
    shown,
    unsigned,
    unsigned_or_none,
)
from topics.http.routes.service import Service, answer, in_reading_order, in_turns, routes, when_copied
from topics.http.routing import Body
from topics.log import (
    KIND_NAMES,
    MAX_BUCKETS,
    STORED,
    Choice,
    Page,
    Shape,
    TagMatch,
    Tombstone,
    Topic,
    bucket_steps,
    exact,
    last_steps,
    parse_match,
    passed_over,
    range_steps,
    read_page,
    why_missing,
)


class DiffBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    from_seq: int = 0
    limit: int = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: int = 0
    max_batch_bytes: int = 0
    epoch: int | UnsetType = UNSET


_encode = msgspec.json.encode
_SHAPES = {(tags, meta): Shape(tags=tags, meta=meta) for tags in (False, True) for meta in (False, True)}
_SHAPES[False, True] = STORED  # the very object, which reads know without asking


@routes.add(
    "POST",
    "/v0/topics/:topic/diff",
    scopes=READ,
    body=Body.OPTIONAL,
    accepts=DiffBody,
    enter=in_reading_order,
)
def diff(service: Service, exchange: Exchange, body: DiffBody) -> None:
    read = Read(body)
    if exchange.unknown_fields is not None:
        service.topic(exchange)
    read.answer(service, exchange, service.admission.read(exchange.name))


class Read:
    """A checked diff request, or one by GET, which may be choosy."""

    def __init__(self, body: DiffBody, choice: Choice | None = None) -> None:
        # Most requests are within these limits, and need no call to be told so.
        if not (
            0 <= body.from_seq <= U64_MAX
            and 0 <= body.limit <= MAX_LIMIT
            and 0 <= body.max_batch_bytes <= MAX_READ_BYTES
            and 0 <= body.wait_ms <= MAX_WAIT_MS
        ):
            body = _within_limits(body)
        self.from_seq = body.from_seq
        self.limit = body.limit or DEFAULT_LIMIT
        self.max_bytes = body.max_batch_bytes or DEFAULT_READ_BYTES
        self.wait_ms = body.wait_ms
        self.nodes = None if body.node is None else node_set(body.node)
        self.shape = _SHAPES[body.include_tags, body.include_meta]
        self.epoch = None if body.epoch is UNSET else unsigned(body.epoch, "epoch")
        self.choice = choice
        # The loss of the reader before the position where it resumes.
        self.owed: Tombstone | None = None

    def answer(self, service: Service, exchange: Exchange, topic: Topic) -> None:
        """At once, or when there is something to tell."""
        page = self.page(service, topic)
        if self.wait_ms and page.count == 0 and page.tombstone is None and page.caught_up:
            ParkedRead(service, exchange, topic, self, page).park()
        else:
            exchange.reply(render_page(exchange, topic, page))

    def page(self, service: Service, topic: Topic) -> Page:
        page = read_page(
            service.engine,
            topic,
            self.from_seq,
            self.limit,
            self.max_bytes,
            nodes=self.nodes,
            shape=self.shape,
            epoch=self.epoch,
            choice=self.choice,
        )
        if self.owed is not None:
            page.tombstone = self.owed.joined(page.tombstone)
        return page


def _within_limits(body: DiffBody) -> DiffBody:
    """Return the request with its limits applied; raises for a number that has none."""
    return msgspec.structs.replace(
        body,
        from_seq=unsigned(body.from_seq, "from_seq"),
        limit=clamped(body.limit, DEFAULT_LIMIT, MAX_LIMIT, "limit"),
        max_batch_bytes=clamped(body.max_batch_bytes, DEFAULT_READ_BYTES, MAX_READ_BYTES, "max_batch_bytes"),
        wait_ms=clamped(body.wait_ms, 0, MAX_WAIT_MS, "wait_ms"),
    )


def render_page(exchange: Exchange, topic: Topic, page: Page) -> bytes:
    """The answer around the rows: stored lines become array elements by turning newlines into commas."""
    gap = page.tombstone
    topic.totals.served("diff", page.count)
    if gap is not None:
        topic.totals.told(topic.name, gap.reason, gap.missed_estimate)
    after = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,"epoch":%d,"performance":{"server_total_ms":%.3f,"records_scanned":%d%b}}'
        % (
            page.next_from_seq,
            page.head_seq,
            page.earliest_seq,
            b"true" if page.caught_up else b"false",
            b"null" if gap is None else _encode(gap),
            page.lag,
            topic.id,
            (perf_counter() - exchange.started) * 1000,
            page.scanned,
            b',"cold_segments_read":%d' % page.cold_reads if page.cold_reads else b"",
        )
    )
    return codec.page(b'{"topic":"%b","records":[' % topic.name_json, page.rows, after)


class ParkedRead:
    """A long-poll: answered by the next committed record, by the clock, or by the client going away."""

    def __init__(self, service: Service, exchange: Exchange, topic: Topic, read: Read, page: Page) -> None:
        self._service = service
        self._exchange = exchange
        self._topic = topic
        self._read = read
        self._page = page
        self._timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> ApiKey | None:
        return self._exchange.key

    def park(self) -> None:
        # Same turn of the loop as the read it guards: no append can fall in between.
        self._topic.listeners.append(self._wake)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._read.wait_ms / 1000, self.release)
        self._exchange.on_close(self._leave)
        self._service.parked.add(self)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._topic.listeners.remove(self._wake)
            self._service.parked.discard(self)

    def _wake(self) -> None:
        topic = self._topic
        if topic.dropped:
            self._leave()
            self._exchange.fail(topic_not_found(topic.name))
        elif topic.head > self._page.head_seq:
            self._leave()
            self._answer(self._read.page(self._service, topic))

    def release(self) -> None:
        """Answer with what was there when the wait began, except the floor: once shown, it never falls."""
        self._leave()
        self._service.engine.refresh(self._topic)
        self._page.earliest_seq = self._topic.floor
        self._answer(self._page)

    def _answer(self, page: Page) -> None:
        # The client has been reading all the while, not only when the wait began.
        self._service.admission.note_read(self._topic)
        self._exchange.reply(render_page(self._exchange, self._topic, page))


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
_RECORDS = "/v0/topics/:topic/records"
_WITH_TAG = Shape(tags=True)
_array = msgspec.json.Decoder(list[Any])


@routes.add(
    "GET",
    _RECORDS,
    scopes=READ,
    query=QUERY,
    repeatable=("node",),
    enter=in_reading_order,
)
def list_records(service: Service, exchange: Exchange) -> None:
    last = exchange.query_number("last")
    read = _read(exchange, last)
    topic = service.topic_to_read(exchange)
    if last is None:
        read.answer(service, exchange, topic)
    else:
        exchange.run(_answer_last(service, exchange, topic, read, min(last, MAX_LIMIT)))


async def _answer_last(service: Service, exchange: Exchange, topic: Topic, read: Read, last: int) -> None:
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
    read.answer(service, exchange, topic)


@routes.add("GET", _RECORDS + "/:seq", scopes=READ, enter=when_copied)
def show_record(service: Service, exchange: Exchange) -> None:
    seq = _seq(exchange.params[0])
    topic = service.topic_to_read(exchange)
    detail: dict[str, Any] = {"topic": topic.name, "seq": seq}
    if not topic.seq_base <= seq <= topic.head:
        raise ApiError("record_not_found", f'"{topic.name}" has no record {seq}', detail)
    page = read_page(service.engine, topic, seq - 1, 1, MAX_RECORD_BYTES, shape=_WITH_TAG, upto=seq)
    topic.totals.served("diff", page.count)
    if not page.count:
        detail["why"] = KIND_NAMES[why_missing(topic, seq)]
        raise ApiError("record_gone", f'record {seq} of "{topic.name}" is gone', detail)
    exchange.reply(
        b'%b"record":%b,"performance":{"server_total_ms":%.3f}}'
        % (topic.opening_json, page.rows[:-1], (perf_counter() - exchange.started) * 1000)
    )


def _read(exchange: Exchange, last: int | None) -> Read:
    epoch = exchange.query_number("epoch")
    limit = exchange.query_number("limit")
    body = DiffBody(
        from_seq=exchange.query_number("from_seq") or 0,
        # The last records that were asked for, if the request has no limit.
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


# --- the ledger ---------------------------------------------------------------------------------------------


@routes.add(
    "GET",
    "/v0/topics/:topic/ledger",
    scopes=READ,
    query=("buckets", "from", "to", "times", "page_size", "cursor"),
    enter=when_copied,
)
async def show_ledger(service: Service, exchange: Exchange) -> None:
    buckets = exchange.query("buckets")
    count = None if buckets is None else _count(buckets)
    after = seq_at_start_of_page(exchange)
    first, last = exchange.query_number("from") or 0, exchange.query_number("to")
    topic = service.current_topic(exchange)
    if count is None:
        after = max(after, topic.seq_base - 1, first - 1)
        told = await _ranges(topic, after, topic.head if last is None else last, page_size(exchange))
        if exchange.query_flag("times", False):
            for one in told["ranges"]:
                one |= _times(topic, one["from"], one["to"])
    else:
        told = await _buckets(topic, count, first, topic.head if last is None else last)
    answer(exchange, shown(topic, "topic", "epoch", "head_seq", "earliest_seq") | told)


async def _ranges(topic: Topic, after: int, upto: int, size: int) -> dict[str, Any]:
    found = await in_turns(exact(topic, lambda: range_steps(topic, after, size + 1)))
    ranges = [(first, min(last, upto), kind) for first, last, kind in found if first <= upto]
    listed = [{"from": first, "to": last, "kind": KIND_NAMES[kind]} for first, last, kind in ranges[:size]]
    more = {"next_cursor": cursor_after(str(ranges[size - 1][1]))} if len(ranges) > size else {}
    return {"ranges": listed, **more}


def _times(topic: Topic, first: int, last: int) -> dict[str, int]:
    """Return the moments between which they went; only the second one if nothing tells the first."""
    found = None if topic.gone_times is None else topic.gone_times.between(first, last)
    if found is None:
        return {}
    after_ms, by_ms = found
    return {"gone_by_ms": by_ms} | ({"gone_after_ms": after_ms} if after_ms else {})


async def _buckets(topic: Topic, count: int, first: int, last: int) -> dict[str, Any]:
    found = await in_turns(exact(topic, lambda: bucket_steps(topic, count, first, last)))
    return {
        "buckets": [
            {"from": b.first, "to": b.last, "live": b.live, **dict(zip(KIND_NAMES, b.missing, strict=True))}
            for b in found
        ]
    }


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_BUCKETS):
        raise invalid(f"buckets must be a number from 1 to {MAX_BUCKETS}")
    return int(text)

"""A page of records above a cursor, at once or when there are some."""

import asyncio

import msgspec
from msgspec import UNSET, UnsetType

from topics import codec
from topics.http.door.keys import READ, ApiKey
from topics.http.routes.fields import clamped, node_set, unsigned
from topics.http.routes.service import Service, elapsed_ms
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log import STORED, Choice, Page, Shape, Tombstone, Topic
from topics.values import (
    DEFAULT_LIMIT,
    DEFAULT_READ_BYTES,
    MAX_LIMIT,
    MAX_READ_BYTES,
    MAX_WAIT_MS,
    Form,
    topic_not_found,
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


_diff = Form(DiffBody)
_encode = msgspec.json.encode
_DEFAULT_DIFF = DiffBody()
_SHAPES = {(tags, meta): Shape(tags=tags, meta=meta) for tags in (False, True) for meta in (False, True)}
_SHAPES[False, True] = STORED  # the very object, which reads know without asking


class DiffRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._admission = service.admission

    def routes(self) -> list[Route]:
        return [Route("POST", "/v0/topics/:topic/diff", self.diff, scopes=READ, body=Body.OPTIONAL)]

    def diff(self, exchange: Exchange) -> None:
        self._admission.read_in_turn(exchange, exchange.name, len(exchange.body), self._diff)

    def _diff(self, exchange: Exchange) -> None:
        # Not through `decode`: one call less where most reads come along.
        body = _diff.read(exchange.body, exchange.note) if exchange.body else _DEFAULT_DIFF
        read = Read(body)
        if exchange.misnamed is not None:
            self._service.topic(exchange)
        read.answer(self._service, exchange, self._admission.read(exchange.name))


class Read:
    """A checked diff request, or one by GET, which may be choosy."""

    __slots__ = ("choice", "epoch", "from_seq", "limit", "max_bytes", "nodes", "owed", "shape", "wait_ms")

    def __init__(self, body: DiffBody, choice: Choice | None = None) -> None:
        self.from_seq = unsigned(body.from_seq, "from_seq")
        self.limit = clamped(body.limit, DEFAULT_LIMIT, MAX_LIMIT, "limit")
        self.max_bytes = clamped(body.max_batch_bytes, DEFAULT_READ_BYTES, MAX_READ_BYTES, "max_batch_bytes")
        self.wait_ms = clamped(body.wait_ms, 0, MAX_WAIT_MS, "wait_ms")
        self.nodes = node_set(body.node)
        self.shape = _SHAPES[body.include_tags, body.include_meta]
        self.epoch = None if body.epoch is UNSET else unsigned(body.epoch, "epoch")
        self.choice = choice
        # What the reader lost before the place where it goes on.
        self.owed: Tombstone | None = None

    def answer(self, service: Service, exchange: Exchange, topic: Topic) -> None:
        """At once, or when there is something to tell."""
        page = self.page(service, topic)
        if self.wait_ms and page.count == 0 and page.tombstone is None and page.caught_up:
            ParkedRead(service, exchange, topic, self, page).park()
        else:
            exchange.reply(render_page(exchange, topic, page))

    def page(self, service: Service, topic: Topic) -> Page:
        page = service.engine.read(
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
            elapsed_ms(exchange),
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

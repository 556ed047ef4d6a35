"""Subscriptions, and event streams that deliver the records of subscribed topics.

Watch sessions, tails and WebSockets share the fields of a subscription. An `EventWatcher` is one stream.
"""

import asyncio
from collections.abc import Callable, Collection

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import (
    DEFAULT_READ_BYTES,
    MAX_LIMIT,
    MAX_READ_BYTES,
    MAX_WATCH_TOPICS,
    NO_LIFE,
    Settings,
    invalid,
)
from topics.flow.watch.delivery import Delivery, Subscription, WatchOptions
from topics.flow.watch.fanout import Fanout
from topics.flow.watch.sessions import StreamPositions
from topics.http import sse
from topics.http.admission.auth import ApiKey, is_revoked
from topics.http.exchange import Exchange
from topics.http.routes.fields import clamped, node_set, unsigned
from topics.http.routes.service import Service, check_name
from topics.http.stream import Stream, SubscribedStream
from topics.log import Choice, Shape, Topic


class Start(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Where to begin in one topic."""

    from_seq: int = 0
    tail: bool = False
    epoch: int | UnsetType = UNSET


class SubscriptionRequest(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Which parts of records, whose records, and how many at a time."""

    node: str | list[str] | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    limit: int = 0
    max_batch_bytes: int = 0

    def options(self, default_limit: int, choice: Choice | None = None, **more: bool) -> WatchOptions:
        return WatchOptions(
            limit=clamped(self.limit, default_limit, MAX_LIMIT, "limit"),
            max_bytes=clamped(self.max_batch_bytes, DEFAULT_READ_BYTES, MAX_READ_BYTES, "max_batch_bytes"),
            nodes=node_set(self.node),
            shape=Shape(tags=self.include_tags, meta=self.include_meta, data=self.include_data),
            choice=choice,
            **more,
        )


class Opening(msgspec.Struct, gc=False):
    """A topic that may be watched, and the cursor to begin with."""

    topic: Topic
    seq: int
    # The life in which that means something, as far as the reader has said; otherwise the present one.
    epoch: int

    def describe(self) -> dict[str, int]:
        topic = self.topic
        return {
            "from_seq": self.seq,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
            "epoch": topic.id,
        }


def open_topics(
    service: Service,
    key: ApiKey | None,
    starts: dict[str, Start],
    last_check: Callable[[], None],
    *,
    lenient: bool,
) -> dict[str, Opening]:
    """All of them or an error; with `lenient`, unknown topics are left out.

    `last_check` may refuse when all else is in order.
    """
    if not 1 <= len(starts) <= MAX_WATCH_TOPICS:
        raise invalid(f"topics must name 1 to {MAX_WATCH_TOPICS} topics")
    for name, start in starts.items():
        unsigned(start.from_seq, f"topics.{name}.from_seq")
        if start.epoch is not UNSET:
            unsigned(start.epoch, f"topics.{name}.epoch")
    check_names(key, starts)
    engine = service.engine
    if lenient:
        starts = {name: start for name, start in starts.items() if engine.find(name) is not None}
    for name in starts:
        engine.require(name)
    last_check()
    return {name: _opening(service.admission.read(name), start) for name, start in starts.items()}


def _opening(topic: Topic, start: Start) -> Opening:
    if start.tail:
        return Opening(topic, topic.head, topic.id)
    if start.epoch is not UNSET:
        return Opening(topic, start.from_seq, start.epoch)
    # Above the head it is no position in this life, and will not be one when more was written.
    return Opening(topic, start.from_seq, topic.id if start.from_seq <= topic.head else NO_LIFE)


def check_names(key: ApiKey | None, names: dict[str, Start] | list[str]) -> None:
    """One name outside the key's prefixes refuses everything."""
    for name in names:
        check_name(key, name)


DEFAULT_FRAME_BYTES = 256 * 1024
DEFAULT_HEARTBEAT_MS = 15_000
HEARTBEAT_MS_RANGE = (1_000, 60_000)


def heartbeat_length(wanted_ms: int, settings: Settings) -> int:
    shortest, longest = HEARTBEAT_MS_RANGE
    return max(clamped(wanted_ms, 0, longest, "heartbeat_ms"), min(settings.test_min_heartbeat_ms, shortest))


def last_event_id(exchange: Exchange) -> bytes:
    """Of the last frame that the client got; empty if it does not say. Pages may have it in the query."""
    return exchange.headers.get(b"last-event-id") or (exchange.query("last_event_id") or "").encode()


class EventRoutes:
    """The open event streams of one route."""

    def __init__(self, fanout: Fanout, patience_s: float, farewell: str = sse.ERROR) -> None:
        """`farewell`: the event with which a stream is told why it ends."""
        self.fanout = fanout
        self.patience_s = patience_s
        self.farewell = farewell
        self.heartbeats = sse.Heartbeats()
        self.streams: set[EventWatcher] = set()

    def end_streams(self) -> None:
        """The server stops."""
        for stream in tuple(self.streams):
            stream.end(sse.shutdown_frame(self.farewell))

    def end_revoked(self) -> None:
        """Keys were removed."""
        for stream in tuple(self.streams):
            if is_revoked(stream.owner):
                stream.end(sse.revoked_frame(self.farewell))


class EventWatcher(SubscribedStream):
    __slots__ = (
        "_beat",
        "_give_back",
        "_loop",
        "_options",
        "_places",
        "_routes",
        "_subscriptions",
        "heartbeat_s",
        "last_sent",
    )

    _held: Stream

    def __init__(
        self,
        routes: EventRoutes,
        stream: Stream,
        places: StreamPositions,
        options: WatchOptions,
        heartbeat_ms: int,
        give_back: Callable[[], None],
    ) -> None:
        super().__init__(routes.fanout, stream, routes.patience_s)
        self._routes = routes
        self._places = places
        self._options = options
        self._give_back = give_back
        self._subscriptions: dict[str, Subscription] = {}
        self._loop = asyncio.get_running_loop()
        self.heartbeat_s = heartbeat_ms / 1000
        self.last_sent = self._loop.time()
        self._beat = routes.heartbeats.add(self)

    @property
    def owner(self) -> object:
        """The key that it was opened with, if keys are in use."""
        raise NotImplementedError

    @property
    def subscriptions(self) -> Collection[Subscription]:
        return self._subscriptions.values()

    def add(self, name: str, head: int) -> Subscription:
        """Subscribe from the position of the stream; `head` is the last known head of the topic."""
        subscription = self._subscriptions[name] = Subscription(
            self,
            name,
            self._options,
            seq=self._places.seqs[name],
            epoch=self._places.epochs[name],
            head=head,
        )
        return subscription

    def start(self) -> None:
        self._routes.streams.add(self)
        self._held.write(sse.RETRY)
        for subscription in tuple(self.subscriptions):
            self._fanout.attach(subscription)
        if self.is_over():
            self.end(b"")
        self._held.on_close(self.on_closed)

    def is_over(self) -> bool:
        """Whether nothing more can be delivered."""
        return not self._subscriptions

    def deliver(self, subscription: Subscription, delivery: Delivery) -> None:
        places, name = self._places, subscription.name
        seqs = places.seqs
        if delivery.epoch != subscription.epoch:
            places.enter(name, delivery.epoch, first_life=delivery.first_life)
        if len(seqs) > 1:
            data = b"".join(
                [self._frame(name, event.kind, event.seq, event.body) for event in delivery.events]
            )
        elif (known := delivery.shared.get("sse")) is not None:
            data = known
        else:
            # Its only topic: the cursors, and so the whole frame, are the same for others.
            data = b"".join(
                [self._frame(name, event.kind, event.seq, event.body) for event in delivery.events]
            )
            delivery.shared["sse"] = data
        seqs[name] = delivery.seq
        if data:
            self.last_sent = self._loop.time()
            self.write(data)

    def _frame(self, name: str, kind: str, seq: int, body: bytes) -> bytes:
        self._places.seqs[name] = seq
        return sse.frame(kind, b"{%b}" % body, self._places.event_id())

    def ended(self, subscription: Subscription) -> None:
        """Drop a subscription. A new topic of that name is delivered only by the next stream."""
        del self._subscriptions[subscription.name]
        if self.is_over():
            self.end(b"")

    def beat(self) -> None:
        if not self.stalled:
            self._held.write(sse.HEARTBEAT)

    def give_up(self) -> None:
        """End the stream; the client can resume from its last event."""
        self.end(sse.slow_frame(sorted(self._subscriptions), self._routes.farewell))

    def end(self, last_words: bytes) -> None:
        self._held.write(last_words)
        self.hang_up()

    def on_closed(self) -> None:
        super().on_closed()
        self._routes.heartbeats.cancel(self._beat)
        self._routes.streams.discard(self)
        self._give_back()
        # Each of them refers to its stream, and many would otherwise wait for the garbage collector.
        self._subscriptions.clear()

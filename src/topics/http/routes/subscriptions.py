"""Subscriptions, and event streams that deliver the records of subscribed topics.

Watch sessions, tails and WebSockets share the fields of a subscription. An `EventWatcher` is one stream.
"""

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
from topics.flow.watch.sessions import StreamPositions
from topics.http import sse
from topics.http.admission.auth import ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import clamped, node_set, unsigned
from topics.http.routes.service import Service, check_name
from topics.http.stream import Stream
from topics.log import Choice, Shape, Topic


class Start(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Where to begin in one topic."""

    from_seq: int = 0
    tail: bool = False
    epoch: int | UnsetType = UNSET


class SubscriptionRequest(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The choice of records and of their parts, and the size of a delivery."""

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
    """Return the id of the last frame that the client got, from a header or the query; or an empty one."""
    return exchange.headers.get(b"last-event-id") or (exchange.query("last_event_id") or "").encode()


class EventWatcher(sse.EventStream):
    """An event stream that delivers the records of subscribed topics."""

    __slots__ = ("_fanout", "_options", "_places", "_subscriptions")

    def __init__(
        self,
        service: Service,
        stream: Stream,
        key: ApiKey | None,
        places: StreamPositions,
        options: WatchOptions,
        heartbeat_ms: int,
        closing: str = sse.ERROR,
    ) -> None:
        super().__init__(service.streams, stream, key, heartbeat_ms / 1000, closing)
        self._fanout = service.node.fanout
        self._places = places
        self._options = options
        self._subscriptions: dict[str, Subscription] = {}

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

    def begin(self) -> None:
        for subscription in tuple(self.subscriptions):
            self._fanout.attach(subscription)
        if self.is_over():
            self.end(b"")

    def is_over(self) -> bool:
        """Return whether nothing more can be delivered."""
        return not self._subscriptions

    def deliver(self, subscription: Subscription, delivery: Delivery) -> None:
        places, name = self._places, subscription.name
        seqs = places.seqs
        if delivery.epoch != subscription.epoch:
            places.enter(name, delivery.epoch, first_life=delivery.first_life)
        # If it is the only topic, the cursors, and so the frames, are the same for other streams.
        shared = delivery.shared if len(seqs) == 1 else {}
        data = shared.get("sse")
        if data is None:
            frames, event_id, at = [], b"", -1
            for event in delivery.events:
                if event.seq != at:
                    seqs[name] = at = event.seq
                    event_id = places.event_id()
                frames.append(sse.FRAME % (event_id, event.kind.encode(), b"{%b}" % event.body))
            data = shared["sse"] = b"".join(frames)
        seqs[name] = delivery.seq
        if data:
            self.last_sent = self._loop.time()
            self.write(data)

    def ended(self, subscription: Subscription) -> None:
        """Drop a subscription. A new topic of that name is delivered only by the next stream."""
        del self._subscriptions[subscription.name]
        if self.is_over():
            self.end(b"")

    def on_relief(self) -> None:
        self._fanout.resume(self.subscriptions)

    def release(self) -> None:
        super().release()
        for subscription in tuple(self.subscriptions):
            self._fanout.detach(subscription)

    def give_up(self) -> None:
        """End the stream; the client can resume from its last event."""
        self.end_slow(sorted(self._subscriptions))

    def on_closed(self) -> None:
        super().on_closed()
        # Each of them refers to its stream, and many would otherwise wait for the garbage collector.
        self._subscriptions.clear()

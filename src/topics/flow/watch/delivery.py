"""What one stream is told next of one topic, and the position it has afterwards.

    position ─▶ read ─▶ gap? ─▶ records? ─▶ caught up with the head? ─▶ next position
                                     topic gone ─▶ goodbye, or on in the topic that took the name

A delivery depends only on the topic, the position and the options. All subscriptions at the same position
share one page, and the bytes made from it. Subscriptions that each leave out the records of their own node
share it, too: a row says which node wrote it, so the page is read once. No protocol is known here.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from topics.log import STORED, Choice, Engine, Page, Shape, Topic, read_page
from topics.storage import node_of

if TYPE_CHECKING:
    from topics.flow.watch.fanout import TopicFanout

RECORD = "record"
TOMBSTONE = "tombstone"
CAUGHT_UP = "caught-up"
DELETED = "topic-deleted"


class WatchOptions(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """How a subscription is served; equal options share their deliveries."""

    limit: int
    max_bytes: int
    nodes: frozenset[str] | None = None
    shape: Shape = STORED
    # Other records are passed over without a word.
    choice: Choice | None = None
    # Deliver only records that are synced to disk.
    strong: bool = False
    # Name a gap that the first read of a stream finds differently from one that opens later.
    names_first_gap: bool = False


class Event(msgspec.Struct, frozen=True, gc=False):
    """`body` holds the members of a JSON object without its braces; `seq` is the cursor after the event."""

    kind: str
    seq: int
    body: bytes


@dataclass(slots=True, eq=False)
class Delivery:
    """What to tell a subscription, and the position it has afterwards."""

    events: tuple[Event, ...]
    seq: int
    epoch: int
    _: KW_ONLY
    caught_up: bool
    more: bool
    first_life: bool = True
    # The number of records in it.
    count: int = 0
    # The reason of the loss that it reports, and how many records were lost.
    gap: str | None = None
    missed: int = 0
    # Bytes of all events.
    size: int = 0
    # The bytes that each protocol made of it, for the next subscription at the same position.
    shared: dict[str, bytes] = field(default_factory=dict)


class Watcher(Protocol):
    """The connection of a subscription."""

    # No room for more: it asks to be resumed when there is room.
    stalled: bool

    def deliver(self, subscription: "Subscription", delivery: Delivery) -> None: ...

    def ended(self, subscription: "Subscription") -> None:
        """Called after the last delivery: the topic is gone."""


@dataclass(slots=True, eq=False)
class Subscription:
    """A watcher's position in one topic."""

    watcher: Watcher
    name: str
    options: WatchOptions
    _: KW_ONLY
    seq: int
    epoch: int
    # The last known head, for when the topic is gone.
    head: int = 0
    # Nothing was read yet.
    fresh: bool = True
    # The watcher knows that it has everything.
    caught_up: bool = False
    # The fan-out that serves it, if any.
    fanout: "TopicFanout | None" = None
    # The options without the nodes to leave out.
    for_all: WatchOptions = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self.for_all = options if options.nodes is None else msgspec.structs.replace(options, nodes=None)

    def move(self, delivery: Delivery) -> None:
        self.seq = delivery.seq
        self.epoch = delivery.epoch
        self.caught_up = delivery.caught_up
        self.fresh = False


class DeliveryKey(NamedTuple):
    """Subscriptions with equal keys get the same delivery."""

    seq: int
    epoch: int
    caught_up: bool
    fresh: bool
    options: WatchOptions


class DeliveryPage:
    """One page for all subscriptions with the same key.

    It is valid in one turn of the loop only: in the next one the topic may have moved.
    """

    __slots__ = ("_key", "_lines", "_page", "_topic", "_upto", "_without", "_written_by", "delivery")

    def __init__(self, engine: Engine, topic: Topic, key: DeliveryKey, upto: int | None) -> None:
        """`upto`: report nothing after this seq."""
        self._topic = topic
        self._key = key
        self._upto = upto
        options = key.options
        self._page = read_page(
            engine,
            topic,
            key.seq,
            options.limit,
            options.max_bytes,
            nodes=options.nodes,
            shape=options.shape,
            epoch=key.epoch,
            upto=upto,
            choice=options.choice,
        )
        self.delivery = _delivery_of(topic, key, self._page, upto)
        self._lines: list[bytes] = []
        # The indexes of the lines of each node; made on first use.
        self._written_by: dict[str, list[int]] | None = None
        self._without: dict[frozenset[str], Delivery] = {}

    @property
    def is_whole(self) -> bool:
        """Whether it reaches the head.

        A page that was cut short would hold more records for a subscription that leaves some out.
        """
        return not self.delivery.more

    def without(self, nodes: frozenset[str]) -> Delivery:
        """Return the delivery without the records of these nodes."""
        written_by = self._written_by
        if written_by is None:
            written_by = self._written_by = self._sort_by_node()
        if nodes.isdisjoint(written_by):
            return self.delivery
        own = nodes.intersection(written_by)
        found = self._without.get(own)
        if found is None:
            left_out = {line for node in own for line in written_by[node]}
            found = self._without[own] = self._leave_out(left_out)
        return found

    def _sort_by_node(self) -> dict[str, list[int]]:
        written_by: dict[str, list[int]] = {}
        if self._page.count:
            self._lines = self._page.rows[:-1].split(b"\n")
            for at, line in enumerate(self._lines):
                node = node_of(line)
                if node is not None:
                    written_by.setdefault(node, []).append(at)
        return written_by

    def _leave_out(self, left_out: set[int]) -> Delivery:
        lines = [line for at, line in enumerate(self._lines) if at not in left_out]
        lines.append(b"")
        page = replace(self._page, rows=b"\n".join(lines), count=len(lines) - 1)
        return _delivery_of(self._topic, self._key, page, self._upto)


def _delivery_of(topic: Topic, key: DeliveryKey, page: Page, upto: int | None) -> Delivery:
    """Return the delivery of a page that was read for this key."""
    events: list[Event] = []
    position, after = key.seq, page.next_from_seq
    caught_up = page.caught_up
    size = 0
    gap = page.tombstone
    if gap is not None:
        position = gap.gap_to
        body = _gap(topic, page, key.fresh and key.options.names_first_gap)
        events.append(Event(TOMBSTONE, position, body))
        size += len(body)
    if page.count:
        # Stored lines become array elements by turning newlines into commas.
        rows = page.rows[:-1].replace(b"\n", b",")
        body = b'"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d' % (
            topic.name_json,
            rows,
            position,
            after,
            page.head_seq,
        )
        events.append(Event(RECORD, after, body))
        size += len(body)
    # A watcher that was caught up hears nothing if only skipped records came.
    if caught_up and (events or not key.caught_up):
        body = b'"topic":"%b","head_seq":%d' % (topic.name_json, page.head_seq)
        events.append(Event(CAUGHT_UP, after, body))
        size += len(body)
    end = page.head_seq if upto is None else min(upto, page.head_seq)
    return Delivery(
        tuple(events),
        after,
        topic.id,
        caught_up=caught_up,
        more=after < end,
        first_life=topic.first_life,
        count=page.count,
        gap=None if gap is None else gap.reason,
        missed=0 if gap is None else gap.missed_estimate,
        size=size,
    )


def last_delivery(subscription: Subscription) -> Delivery:
    """Return the delivery that reports that the topic is gone."""
    name = subscription.name.encode()
    body = b'"topic":"%b","head_seq":%d,"reason":"deleted"' % (name, subscription.head)
    event = Event(DELETED, subscription.seq, body)
    return Delivery(
        (event,), subscription.seq, subscription.epoch, caught_up=False, more=False, size=len(body)
    )


def _gap(topic: Topic, page: Page, is_first: bool) -> bytes:
    gap = page.tombstone
    assert gap is not None
    reason = "from_seq_too_old" if is_first and gap.reason != "recreated" else gap.reason
    body = b'"topic":"%b","reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d' % (
        topic.name_json,
        reason.encode(),
        gap.gap_from,
        gap.gap_to,
        gap.earliest_seq,
        gap.head_seq,
    )
    if gap.previous_epoch is not UNSET:
        body += b',"previous_epoch":%d' % gap.previous_epoch
    return body

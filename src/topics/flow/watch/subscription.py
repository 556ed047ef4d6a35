"""One topic as seen by one stream: what it is told next, and where that leaves it.

    position ─▶ read ─▶ gap? ─▶ records? ─▶ level with the head? ─▶ next position
                                     topic gone ─▶ goodbye, or on in the instance that took the name

A delivery depends on nothing but the topic, the position and the options, so all subscriptions at the same
place share one, together with the bytes made from it; `others_records` shares it even among those that each
leave out their own records. No protocol is known here.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from topics.log import STORED, Choice, Engine, Page, Shape, Topic

if TYPE_CHECKING:
    from topics.flow.watch.fanout import Feed

RECORD = "record"
TOMBSTONE = "tombstone"
CAUGHT_UP = "caught-up"
DELETED = "topic-deleted"


class WatchOptions(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """How a subscription wants to be served; equal options share their deliveries."""

    limit: int
    max_bytes: int
    nodes: frozenset[str] | None = None
    shape: Shape = STORED
    # Other records are passed in silence.
    choice: Choice | None = None
    # Deliver only what is synced to disk.
    strong: bool = False
    # A gap met by the first read of a stream is told apart from one that opens while it runs.
    names_first_gap: bool = False


class Event(msgspec.Struct, frozen=True, gc=False):
    """`body` holds the members of a JSON object without its braces; `seq` is the cursor once it is told."""

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
    level: bool
    more: bool
    first_life: bool = True
    # How many records it holds, and the reason of the loss it tells of, and how many that are.
    count: int = 0
    gap: str | None = None
    missed: int = 0
    # What each protocol made of it, for the next subscription at the same place.
    shared: dict[str, bytes] = field(default_factory=dict)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(event.body) for event in self.events)


class Watcher(Protocol):
    """The connection behind a subscription."""

    # No room for more: it asks to be resumed when there is.
    stalled: bool

    def deliver(self, subscription: "Subscription", delivery: Delivery) -> None: ...

    def ended(self, subscription: "Subscription") -> None:
        """Its topic is gone, and it has been told."""


@dataclass(slots=True, eq=False)
class Subscription:
    """A watcher's place in one topic."""

    watcher: Watcher
    name: str
    options: WatchOptions
    _: KW_ONLY
    seq: int
    epoch: int
    # The last head known, for when the topic is gone.
    head: int = 0
    # Nothing was read yet.
    fresh: bool = True
    # The watcher knows that it has everything.
    level: bool = False
    # Where it is served, while it is.
    feed: "Feed | None" = None
    # Its options, but for whose records it leaves out.
    for_all: WatchOptions = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self.for_all = options if options.nodes is None else msgspec.structs.replace(options, nodes=None)

    def at_rest(self, topic: Topic) -> bool:
        return self.seq == topic.head and self.level and self.epoch == topic.id

    def move(self, delivery: Delivery) -> None:
        self.seq = delivery.seq
        self.epoch = delivery.epoch
        self.level = delivery.level
        self.fresh = False


class Place(NamedTuple):
    """Where subscriptions are that are told the same."""

    seq: int
    epoch: int
    level: bool
    fresh: bool
    options: WatchOptions


def next_page(engine: Engine, topic: Topic, place: Place, upto: int | None) -> Page:
    """One page further, not beyond `upto`."""
    options = place.options
    return engine.read(
        topic,
        place.seq,
        options.limit,
        options.max_bytes,
        nodes=options.nodes,
        shape=options.shape,
        epoch=place.epoch,
        upto=upto,
        choice=options.choice,
    )


def delivery_of(topic: Topic, place: Place, page: Page, upto: int | None) -> Delivery:
    """What is told of a page that was read at this place."""
    events: list[Event] = []
    position = place.seq
    gap = page.tombstone
    if gap is not None:
        position = gap.gap_to
        events.append(_gap_event(topic, page, place.fresh and place.options.names_first_gap))
    if page.count:
        events.append(Event(RECORD, page.next_from_seq, _records(topic, page, position)))
    # Passing only what is skipped in silence is no news to a watcher that was level before.
    if page.caught_up and (events or not place.level):
        events.append(Event(CAUGHT_UP, page.next_from_seq, _head(topic.name_json, page.head_seq)))
    end = page.head_seq if upto is None else min(upto, page.head_seq)
    return Delivery(
        tuple(events),
        page.next_from_seq,
        topic.id,
        level=page.caught_up,
        more=page.next_from_seq < end,
        first_life=topic.first_life,
        count=page.count,
        gap=None if gap is None else gap.reason,
        missed=0 if gap is None else gap.missed_estimate,
    )


def last_delivery(subscription: Subscription) -> Delivery:
    """The topic is gone."""
    body = _head(subscription.name.encode(), subscription.head) + b',"reason":"deleted"'
    event = Event(DELETED, subscription.seq, body)
    return Delivery((event,), subscription.seq, subscription.epoch, level=False, more=False)


def _gap_event(topic: Topic, page: Page, is_first: bool) -> Event:
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
    return Event(TOMBSTONE, gap.gap_to, body)


def _records(topic: Topic, page: Page, position: int) -> bytes:
    # Stored lines become array elements by turning newlines into commas.
    rows = page.rows[:-1].replace(b"\n", b",")
    return b'"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d' % (
        topic.name_json,
        rows,
        position,
        page.next_from_seq,
        page.head_seq,
    )


def _head(name: bytes, head: int) -> bytes:
    return b'"topic":"%b","head_seq":%d' % (name, head)

"""An event stream without a session: what to read, and from where, is in its URL and in the last id.

A browser can hold it for weeks. When it comes back with the id of the last frame that it got, it goes on from
there, also after a restart of the server. Topics that are not there yet are waited for, and read from their
first record when they come.
"""

import re
from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from topics.core import DEFAULT_LIMIT, MAX_WATCH_TOPICS, NO_LIFE, ApiError, invalid
from topics.flow.watch.delivery import Subscription, WatchOptions
from topics.flow.watch.sessions import Epochs, Seqs, StreamPositions, decode_id
from topics.http import sse
from topics.http.admission.auth import READ, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import unsigned
from topics.http.routes.reads import match_of
from topics.http.routes.service import Service, check_name, routes
from topics.http.routes.subscriptions import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_HEARTBEAT_MS,
    EventWatcher,
    SubscriptionRequest,
    heartbeat_length,
    last_event_id,
)
from topics.http.stream import Stream
from topics.log import Choice, Engine, Topic, exactly, last_steps

QUERY = (
    "topic",
    "node",
    "tag",
    "include_tags",
    "include_meta",
    "include_data",
    "limit",
    "heartbeat_ms",
)
_TOPIC = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:-]{0,254}|(?=\*))(?P<star>\*)?"
    r"(?:@(?:-(?P<last>[0-9]{1,20})|(?P<seq>[0-9]{1,20})(?:~(?P<epoch>[0-9]{1,20}))?))?"
)


class TailStart(msgspec.Struct, frozen=True, gc=False):
    """Where to begin in a topic: above a seq, with its last records, or else at the head."""

    seq: int | None = None
    epoch: int | None = None
    last: int | None = None

    def place_in(self, topic: Topic) -> tuple[int, int]:
        """A cursor, and the life in which it means something."""
        if self.last is not None:
            last = self.last
            return exactly(topic, lambda: last_steps(topic, last)), topic.id
        if self.seq is None:
            return topic.head, topic.id
        if self.epoch is not None:
            return self.seq, self.epoch
        # Above the head it is no position in this life, and will not be one when more was written.
        return self.seq, topic.id if self.seq <= topic.head else NO_LIFE

    @property
    def former(self) -> tuple[int, int]:
        """Where this is if the topic is not there: what was meant with a seq lies in a life that is over."""
        return self.seq or 0, NO_LIFE if self.epoch is None else self.epoch


class TailRequest:
    """The topics of a stream, and where each of them begins."""

    def __init__(self, asked: list[str], last_event_id: bytes) -> None:
        self.names: dict[str, TailStart] = {}
        self.prefixes: dict[str, TailStart] = {}
        # TailStart an earlier stream: then whatever is not in there came later.
        self._known: tuple[Seqs, Epochs] | None = decode_id(last_event_id) if last_event_id else None
        if not 1 <= len(asked) <= MAX_WATCH_TOPICS:
            raise invalid(f"topic must be given 1 to {MAX_WATCH_TOPICS} times")
        for text in asked:
            self._add(text)

    def _add(self, text: str) -> None:
        found = _TOPIC.fullmatch(text)
        if found is None:
            raise invalid(f'topic must be NAME, NAME@SEQ, NAME@SEQ~EPOCH, NAME@-N or PREFIX*, not "{text}"')
        numbers = {
            what: None if number is None else unsigned(int(number), f"topic: {what}")
            for what, number in (("seq", found["seq"]), ("epoch", found["epoch"]), ("last", found["last"]))
        }
        if found["star"] and numbers["epoch"] is not None:
            raise invalid(f'topic: an epoch is that of one topic, not of all in "{text}"')
        among = self.prefixes if found["star"] else self.names
        if found["name"] in among:
            raise invalid(f'topic: "{found["name"]}" is given twice')
        among[found["name"]] = TailStart(**numbers)

    def check(self, key: ApiKey | None) -> None:
        """Raises for what the key may not read, and for a prefix under which there is nothing that it may."""
        for name in self.names:
            check_name(key, name)
        for prefix in self.prefixes:
            if key is None or not any(allowed.startswith(prefix) for allowed in key.prefixes):
                check_name(key, prefix)

    def covers(self, name: str) -> bool:
        return name in self.names or name.startswith(tuple(self.prefixes))

    def present(self, engine: Engine, key: ApiKey | None) -> Iterator[str]:
        """Topics that are there now; of those with a prefix, a few more than a stream may have at most."""
        yield from (name for name in self.names if engine.find(name) is not None)
        others: dict[str, None] = {}
        for prefix in self.prefixes:
            names = (name for name in engine.names_after("", prefix) if name not in self.names)
            readable = (name for name in names if key is None or key.allows(name))
            others |= dict.fromkeys(islice(readable, MAX_WATCH_TOPICS + 1))
        yield from others

    def place(self, topic: Topic) -> tuple[int, int]:
        """Where to begin in a topic that is there when the stream is opened."""
        if self._known is not None:
            seqs, later = self._known
            if topic.name not in seqs:
                return 0, topic.id
            first = topic.id if topic.first_life else NO_LIFE
            return seqs[topic.name], later.get(topic.name, first)
        return self._start(topic.name).place_in(topic)

    def left_behind(self, topics: Collection[str]) -> Iterator[tuple[str, int, int]]:
        """Where the client stood in topics other than these, which are there: in lives that are over."""
        if self._known is None:
            former = {name: start.former for name, start in self.names.items()}
        else:
            seqs, later = self._known
            former = {
                name: (seq, later.get(name, NO_LIFE)) for name, seq in seqs.items() if self.covers(name)
            }
        begun = ((name, *place) for name, place in former.items() if place != (0, NO_LIFE))
        left = (place for place in begun if place[0] not in topics)
        yield from islice(left, MAX_WATCH_TOPICS)

    def _start(self, name: str) -> TailStart:
        if name in self.names:
            return self.names[name]
        # The longest prefix knows best.
        fitting = [prefix for prefix in self.prefixes if name.startswith(prefix)]
        return self.prefixes[max(fitting, key=len)]


@routes.add("GET", "/v0/tail", scopes=READ, event_stream=True, query=QUERY, repeatable=("topic", "node"))
def open_stream(service: Service, exchange: Exchange) -> None:
    request = TailRequest(exchange.query_all("topic"), last_event_id(exchange))
    options = _options(exchange)
    heartbeat_ms = exchange.query_number("heartbeat_ms")
    heartbeat_ms = heartbeat_length(
        DEFAULT_HEARTBEAT_MS if heartbeat_ms is None else heartbeat_ms, service.settings
    )
    request.check(exchange.key)
    present = list(request.present(service.engine, exchange.key))
    if len(request.names.keys() | set(present)) > MAX_WATCH_TOPICS:
        raise too_many_topics()
    exchange.refuse_unknown_fields()
    topics = [service.admission.read(name) for name in present]
    service.streams.take_place(exchange.key)
    stream = exchange.open_stream(sse.CONTENT_TYPE, sse.HEADERS)
    TailStream(service, exchange.key, request, stream, topics, options, heartbeat_ms).start()


def too_many_topics() -> ApiError:
    return invalid(f"a stream covers at most {MAX_WATCH_TOPICS} topics", {"max": MAX_WATCH_TOPICS})


def _options(exchange: Exchange) -> WatchOptions:
    tag = exchange.query("tag")
    wanted = SubscriptionRequest(
        node=exchange.query_all("node") or None,
        include_meta=exchange.query_flag("include_meta", True),
        include_tags=exchange.query_flag("include_tags", False),
        include_data=exchange.query_flag("include_data", True),
        limit=exchange.query_number("limit") or 0,
        max_batch_bytes=DEFAULT_FRAME_BYTES,
    )
    choice = None if tag is None else Choice(match_of(tag))
    return wanted.options(DEFAULT_LIMIT, choice, names_first_gap=True)


class TailStream(EventWatcher):
    """One connection. All that is known about it is what its client said when it came."""

    __slots__ = ("_awaited", "_awaiting", "_request")

    def __init__(
        self,
        service: Service,
        key: ApiKey | None,
        request: TailRequest,
        stream: Stream,
        topics: list[Topic],
        options: WatchOptions,
        heartbeat_ms: int,
    ) -> None:
        super().__init__(service, stream, key, StreamPositions(), options, heartbeat_ms, sse.CLOSING)
        self._request = request
        self._awaiting = service.awaiting
        # Names whose topics have not come yet.
        self._awaited = request.names.keys() - {topic.name for topic in topics}
        for topic in topics:
            self._add(topic, *request.place(topic))
        # Ids keep what they said of topics that are gone: who comes back is told that what came is another.
        for name, seq, epoch in request.left_behind(self._subscriptions):
            self._places.put(name, seq, epoch, first_life=False)
        if self._awaited or request.prefixes:
            self._awaiting.add(self.topic_shown)

    def _add(self, topic: Topic, seq: int, epoch: int) -> Subscription:
        first_life = topic.first_life and epoch == topic.id
        self._places.put(topic.name, seq, epoch, first_life=first_life)
        return self.add(topic.name, topic.head)

    def topic_shown(self, topic: Topic) -> None:
        """A topic has come while the stream is open. Of one that was named, that is the one waited for."""
        name = topic.name
        if name in self._subscriptions:
            return
        if name in self._request.names:
            if name not in self._awaited:
                return
            self._awaited.discard(name)
        elif not self._request.covers(name) or not (self.key is None or self.key.allows(name)):
            return
        elif len(self._request.names.keys() | self._subscriptions.keys()) >= MAX_WATCH_TOPICS:
            self.end_with(code="too_many_topics", message=too_many_topics().message)
            return
        places = self._places
        left = (places.seqs[name], places.epochs[name]) if name in places.seqs else (0, topic.id)
        self._fanout.attach(self._add(topic, *left))

    def is_over(self) -> bool:
        return not (self._subscriptions or self._awaited or self._request.prefixes)

    def ended(self, subscription: Subscription) -> None:
        if subscription.name not in self._request.names:
            # A topic that comes in its place is one that came later, like any other.
            self._places.forget(subscription.name)
        super().ended(subscription)

    def release(self) -> None:
        super().release()
        self._awaiting.discard(self.topic_shown)

"""Watch sessions and the event streams they are read through."""

import asyncio
from collections.abc import Callable, Collection
from typing import Literal

from topics.flow.watch.fanout import Fanout
from topics.flow.watch.places import Places
from topics.flow.watch.sessions import Known, Session, WatchSessions
from topics.flow.watch.subscription import Delivery, Subscription
from topics.http.door.keys import READ, is_revoked
from topics.http.door.required_headers import require_event_stream_accepted, unauthorized
from topics.http.door.stream_slots import StreamSlots
from topics.http.routes.fields import clamped, decode
from topics.http.routes.service import Service, answer
from topics.http.routes.streams.subscriptions import Opening, Start, Wanted, open_topics
from topics.http.wire import event_stream as sse
from topics.http.wire.channel import Stream
from topics.http.wire.exchange import Exchange
from topics.http.wire.fed_connection import PATIENCE_S, FedWatcher
from topics.http.wire.routing import Body, Route
from topics.values import DEFAULT_LIMIT, WATCH_SESSION_IDLE_MS, ApiError, Form

DEFAULT_FRAME_BYTES = 256 * 1024
DEFAULT_HEARTBEAT_MS = 15_000
HEARTBEAT_MS_RANGE = (1_000, 60_000)


class WatchBody(Wanted, kw_only=True, gc=False, forbid_unknown_fields=True):
    topics: dict[str, Start]
    max_batch_bytes: int = DEFAULT_FRAME_BYTES
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    consistency: Literal["eventual", "strong"] = "eventual"


_watch = Form(WatchBody)


class WatchRoutes:
    def __init__(
        self, service: Service, fanout: Fanout, slots: StreamSlots, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._service = service
        self.fanout = fanout
        self._slots = slots
        self.patience_s = patience_s
        settings = service.settings
        self._shortest_heartbeat_ms = min(settings.test_min_heartbeat_ms, HEARTBEAT_MS_RANGE[0])
        self.sessions = WatchSessions(settings.max_watch_sessions, service.engine.now)
        self.heartbeats = sse.Heartbeats()
        self.streams: set[WatchStream] = set()

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v0/watch", self.create, scopes=READ, body=Body.REQUIRED, query=("lenient",)),
            Route(
                "GET",
                "/v0/watch/:wid",
                self.open,
                event_stream=True,
                token_in_query=True,
                auth_in_handler=True,
            ),
        ]

    def create(self, exchange: Exchange) -> None:
        body = decode(exchange, _watch)
        options = body.options(DEFAULT_LIMIT, strong=body.consistency == "strong", names_first_gap=True)
        longest = HEARTBEAT_MS_RANGE[1]
        heartbeat_ms = max(
            clamped(body.heartbeat_ms, 0, longest, "heartbeat_ms"), self._shortest_heartbeat_ms
        )
        openings = open_topics(
            self._service,
            exchange.key,
            body.topics,
            exchange.refuse_misnamed,
            lenient=exchange.query_flag("lenient", False),
        )
        session = self.sessions.create(
            exchange.key,
            options,
            heartbeat_ms,
            _places(openings),
            {name: Known(opening.topic.id, opening.topic.head) for name, opening in openings.items()},
        )
        result = {
            "wid": session.wid,
            "stream_url": f"/v0/watch/{session.wid}",
            "session_ttl_ms": WATCH_SESSION_IDLE_MS,
            "topics": {name: opening.describe() for name, opening in openings.items()},
        }
        answer(exchange, result)

    def open(self, exchange: Exchange) -> None:
        session = self.sessions.find(exchange.name)
        # Knowing the id is not enough: the key that made the session has to be shown.
        if session is not None and exchange.key is not session.owner:
            if exchange.key is None or not is_revoked(session.owner):
                raise unauthorized()
            session = None  # it ended with its key, even if the same secret has come back
        require_event_stream_accepted(exchange)
        if session is None:
            raise ApiError("not_found", "no such watch session")
        exchange.refuse_misnamed()
        give_back = self._slots.take(exchange.key)
        stream = exchange.open_stream(sse.CONTENT_TYPE, sse.HEADERS)
        WatchStream(self, session, stream, exchange.headers.get(b"last-event-id"), give_back).start()

    def epoch_of(self, name: str) -> int | None:
        """Of the topic that has this name now."""
        topic = self._service.engine.find(name)
        return None if topic is None else topic.id

    def end_streams(self) -> None:
        """The server stops."""
        for stream in tuple(self.streams):
            stream.end(sse.shutdown_frame())

    def end_revoked(self) -> None:
        """Keys were removed."""
        for stream in tuple(self.streams):
            if is_revoked(stream.owner):
                stream.end(sse.revoked_frame())


def _places(openings: dict[str, Opening]) -> Places:
    places = Places()
    for name, opening in openings.items():
        topic = opening.topic
        first_life = topic.first_life and opening.epoch == topic.id
        places.put(name, opening.seq, opening.epoch, first_life=first_life)
    return places


class WatchStream(FedWatcher):
    """One connection that reads a session."""

    __slots__ = (
        "_beat",
        "_give_back",
        "_loop",
        "_places",
        "_routes",
        "_session",
        "_subscriptions",
        "heartbeat_s",
        "last_sent",
    )

    _held: Stream

    def __init__(
        self,
        routes: WatchRoutes,
        session: Session,
        stream: Stream,
        last_event_id: bytes | None,
        give_back: Callable[[], None],
    ) -> None:
        super().__init__(routes.fanout, stream, routes.patience_s)
        self._routes = routes
        self._session = session
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._places = session.start(last_event_id, routes.epoch_of)
        self._subscriptions = {
            name: Subscription(
                self,
                name,
                session.options,
                seq=seq,
                epoch=self._places.epochs[name],
                head=session.known[name].head,
            )
            for name, seq in self._places.seqs.items()
        }
        self.heartbeat_s = session.heartbeat_ms / 1000
        self.last_sent = self._loop.time()
        self._beat = routes.heartbeats.add(self)

    @property
    def owner(self) -> object:
        return self._session.owner

    @property
    def subscriptions(self) -> Collection[Subscription]:
        return self._subscriptions.values()

    def start(self) -> None:
        self._routes.streams.add(self)
        self._routes.sessions.stream_opened(self._session)
        self._held.write(sse.RETRY)
        for subscription in tuple(self.subscriptions):
            self._fanout.attach(subscription)
        if not self._subscriptions:
            self.end(b"")
        self._held.on_close(self.on_closed)

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
            # The only topic of its session: the cursors, and so the whole frame, are the same for others.
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
        """For good, on this stream: another topic of that name is for the next one."""
        del self._subscriptions[subscription.name]
        self._session.note(subscription.name, subscription.epoch, subscription.head)
        if not self._subscriptions:
            self.end(b"")

    def beat(self) -> None:
        if not self.stalled:
            self._held.write(sse.HEARTBEAT)

    def give_up(self) -> None:
        """Its session stays, and can be taken up again."""
        self.end(sse.slow_frame(sorted(self._subscriptions)))

    def end(self, last_words: bytes) -> None:
        self._held.write(last_words)
        self.hang_up()

    def release(self) -> None:
        super().release()
        for subscription in self._subscriptions.values():
            self._session.note(subscription.name, subscription.epoch, subscription.head)

    def on_closed(self) -> None:
        super().on_closed()
        self._routes.heartbeats.cancel(self._beat)
        self._routes.streams.discard(self)
        self._routes.sessions.stream_ended(self._session)
        self._give_back()

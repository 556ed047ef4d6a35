"""Watch sessions and the event streams they are read through."""

from collections.abc import Callable
from typing import Literal

from topics.core import DEFAULT_LIMIT, WATCH_SESSION_IDLE_MS, ApiError
from topics.flow.watch.delivery import Subscription
from topics.flow.watch.fanout import Fanout
from topics.flow.watch.sessions import Known, StreamPositions, WatchSession, WatchSessions
from topics.http import sse
from topics.http.admission.address import parse_base_path
from topics.http.admission.admit import require_event_stream_accepted
from topics.http.admission.auth import READ, is_revoked, unauthorized
from topics.http.admission.limits import StreamSlots
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer
from topics.http.routes.subscriptions import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_HEARTBEAT_MS,
    EventRoutes,
    EventWatcher,
    Opening,
    Start,
    SubscriptionRequest,
    heartbeat_length,
    last_event_id,
    open_topics,
)
from topics.http.routing import Body, Route
from topics.http.stream import PATIENCE_S, Stream


class WatchBody(SubscriptionRequest, kw_only=True, gc=False, forbid_unknown_fields=True):
    topics: dict[str, Start]
    max_batch_bytes: int = DEFAULT_FRAME_BYTES
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    consistency: Literal["eventual", "strong"] = "eventual"


class WatchRoutes(EventRoutes):
    def __init__(
        self, service: Service, fanout: Fanout, slots: StreamSlots, *, patience_s: float = PATIENCE_S
    ) -> None:
        super().__init__(fanout, patience_s)
        self._service = service
        self._slots = slots
        self._base_path = parse_base_path(service.settings.base_path)
        self.sessions = WatchSessions(service.settings.max_watch_sessions, service.engine.steady_ms)

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v0/watch",
                self.create,
                scopes=READ,
                body=Body.REQUIRED,
                accepts=WatchBody,
                query=("lenient",),
            ),
            Route(
                "GET",
                "/v0/watch/:wid",
                self.open,
                event_stream=True,
                token_in_query=True,
                auth_in_handler=True,
            ),
        ]

    def create(self, exchange: Exchange, body: WatchBody) -> None:
        options = body.options(DEFAULT_LIMIT, strong=body.consistency == "strong", names_first_gap=True)
        heartbeat_ms = heartbeat_length(body.heartbeat_ms, self._service.settings)
        openings = open_topics(
            self._service,
            exchange.key,
            body.topics,
            exchange.refuse_unknown_fields,
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
            "stream_url": f"{self._base_path}/v0/watch/{session.wid}",
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
        exchange.refuse_unknown_fields()
        give_back = self._slots.take(exchange.key)
        stream = exchange.open_stream(sse.CONTENT_TYPE, sse.HEADERS)
        WatchStream(self, session, stream, last_event_id(exchange), give_back).start()

    def epoch_of(self, name: str) -> int | None:
        """Of the topic that has this name now."""
        topic = self._service.engine.find(name)
        return None if topic is None else topic.id


def _places(openings: dict[str, Opening]) -> StreamPositions:
    places = StreamPositions()
    for name, opening in openings.items():
        topic = opening.topic
        first_life = topic.first_life and opening.epoch == topic.id
        places.put(name, opening.seq, opening.epoch, first_life=first_life)
    return places


class WatchStream(EventWatcher):
    """One connection that reads a session."""

    __slots__ = ("_session", "_sessions")

    def __init__(
        self,
        routes: WatchRoutes,
        session: WatchSession,
        stream: Stream,
        last_event_id: bytes | None,
        give_back: Callable[[], None],
    ) -> None:
        places = session.start(last_event_id, routes.epoch_of)
        super().__init__(routes, stream, places, session.options, session.heartbeat_ms, give_back)
        self._sessions = routes.sessions
        self._session = session
        for name in places.seqs:
            self.add(name, session.known[name].head)

    @property
    def owner(self) -> object:
        return self._session.owner

    def start(self) -> None:
        self._sessions.stream_opened(self._session)
        super().start()

    def ended(self, subscription: Subscription) -> None:
        self._session.note(subscription.name, subscription.epoch, subscription.head)
        super().ended(subscription)

    def release(self) -> None:
        super().release()
        for subscription in self.subscriptions:
            self._session.note(subscription.name, subscription.epoch, subscription.head)

    def on_closed(self) -> None:
        super().on_closed()
        self._sessions.stream_ended(self._session)

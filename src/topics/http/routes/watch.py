"""Watch sessions and the event streams they are read through."""

from typing import Literal

from topics.core import DEFAULT_LIMIT, WATCH_SESSION_IDLE_MS, ApiError
from topics.flow.watch.delivery import Subscription
from topics.flow.watch.sessions import Known, StreamPositions, WatchSession
from topics.http import sse
from topics.http.admission.admit import require_event_stream_accepted
from topics.http.admission.auth import READ, ApiKey, is_revoked, unauthorized
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer, routes
from topics.http.routes.subscriptions import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_HEARTBEAT_MS,
    EventWatcher,
    Opening,
    Start,
    SubscriptionRequest,
    heartbeat_length,
    last_event_id,
    open_topics,
)
from topics.http.routing import Body
from topics.http.stream import Stream


class WatchBody(SubscriptionRequest, kw_only=True, gc=False, forbid_unknown_fields=True):
    topics: dict[str, Start]
    max_batch_bytes: int = DEFAULT_FRAME_BYTES
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    consistency: Literal["eventual", "strong"] = "eventual"


@routes.add("POST", "/v0/watch", scopes=READ, body=Body.REQUIRED, accepts=WatchBody, query=("lenient",))
def create(service: Service, exchange: Exchange, body: WatchBody) -> None:
    options = body.options(DEFAULT_LIMIT, strong=body.consistency == "strong", names_first_gap=True)
    heartbeat_ms = heartbeat_length(body.heartbeat_ms, service.settings)
    openings = open_topics(
        service,
        exchange.key,
        body.topics,
        exchange.refuse_unknown_fields,
        lenient=exchange.query_flag("lenient", False),
    )
    session = service.sessions.create(
        exchange.key,
        options,
        heartbeat_ms,
        _places(openings),
        {name: Known(opening.topic.id, opening.topic.head) for name, opening in openings.items()},
    )
    result = {
        "wid": session.wid,
        "stream_url": f"{service.base_path}/v0/watch/{session.wid}",
        "session_ttl_ms": WATCH_SESSION_IDLE_MS,
        "topics": {name: opening.describe() for name, opening in openings.items()},
    }
    answer(exchange, result)


@routes.add("GET", "/v0/watch/:wid", event_stream=True, token_in_query=True, auth_in_handler=True)
def open_stream(service: Service, exchange: Exchange) -> None:
    session = service.sessions.find(exchange.name)
    # Knowing the id is not enough: the key that made the session has to be shown.
    if session is not None and exchange.key is not session.owner:
        if exchange.key is None or not is_revoked(session.owner):
            raise unauthorized()
        session = None  # it ended with its key, even if the same secret has come back
    require_event_stream_accepted(exchange)
    if session is None:
        raise ApiError("not_found", "no such watch session")
    exchange.refuse_unknown_fields()
    service.streams.take_place(exchange.key)
    stream = exchange.open_stream(sse.CONTENT_TYPE, sse.HEADERS)
    WatchStream(service, session, stream, exchange.key, last_event_id(exchange)).start()


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
        service: Service,
        session: WatchSession,
        stream: Stream,
        key: ApiKey | None,
        last_event_id: bytes,
    ) -> None:
        def epoch_of(name: str) -> int | None:
            """Return the epoch of the topic that has this name now."""
            topic = service.engine.find(name)
            return None if topic is None else topic.id

        places = session.start(last_event_id, epoch_of)
        super().__init__(service, stream, key, places, session.options, session.heartbeat_ms)
        self._sessions = service.sessions
        self._session = session
        for name in places.seqs:
            self.add(name, session.known[name].head)

    def begin(self) -> None:
        self._sessions.stream_opened(self._session)
        super().begin()

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

"""The commands of a WebSocket: subscribe, unsubscribe, publish, ping. Mistakes never close the socket."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from topics import codec
from topics.core import MAX_LIMIT, UNDECODABLE, ApiError, StrictDecoder, invalid, limit_reached, undecodable
from topics.flow.large_appends import LARGE_BYTES
from topics.flow.watch.delivery import Subscription
from topics.http.admission.auth import ADMIN, READ, WRITE
from topics.http.exchange import Exchange
from topics.http.open_streams import error_message
from topics.http.routes.service import Service, routes
from topics.http.routes.socket_publishing import (
    MISTAKES,
    Message,
    NotACommand,
    Publication,
    Publications,
)
from topics.http.routes.subscriptions import Start, SubscriptionRequest, check_names, open_topics

if TYPE_CHECKING:
    from topics.http.websocket import Socket

_encode = msgspec.json.encode
_NULL = b"null"
# The limit of one socket; a command names at most as many topics as a watch session may have.
MAX_SUBSCRIPTIONS = 1000


class _Envelope(msgspec.Struct, gc=False):
    op: Any = None
    # Kept as the text it came in, to be sent back the same.
    request_id: Raw = Raw(_NULL)


class _Ping(_Envelope, gc=False, forbid_unknown_fields=True):
    pass


class _Subscribe(SubscriptionRequest, kw_only=True, gc=False, forbid_unknown_fields=True):
    op: Any = None
    request_id: Any = None
    topic: str | None = None
    from_seq: int = 0
    tail: bool = False
    epoch: int | UnsetType = UNSET
    topics: dict[str, Start] | None = None
    lenient: bool = False


class _Unsubscribe(_Envelope, gc=False, forbid_unknown_fields=True):
    topic: str | None = None
    topics: list[str] | None = None


class _Publish(msgspec.Struct, gc=False):
    """The fields of a publish that its admission needs; see `PublishBody` for all fields."""

    topic: str | None = None
    records: Raw = Raw(b"")
    config: Raw = Raw(_NULL)


_envelope = msgspec.json.Decoder(_Envelope)
_ping = StrictDecoder(_Ping)
_subscribe = StrictDecoder(_Subscribe)
_unsubscribe = StrictDecoder(_Unsubscribe)
_publish = msgspec.json.Decoder(_Publish)


# Any valid key may connect; each command is checked on its own.
@routes.add("GET", "/v0/ws", websocket=True)
def connect(service: Service, exchange: Exchange) -> None:
    # Imported when the server is up: a start does not wait for it.
    from topics.http.websocket import Socket, accept_token, upgraded

    token = accept_token(exchange.headers)
    exchange.refuse_unknown_fields()
    service.streams.take_place(exchange.key)
    Socket(
        service.streams,
        service.node.fanout,
        upgraded(exchange, token),
        exchange.key,
        Commands(service),
        service.settings.max_body_bytes,
    ).start()


class Commands:
    """The commands of one socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # Made when the socket publishes something.
        self._publications: Publications | None = None

    def on_text(self, socket: "Socket", text: bytes) -> None:
        message = Message(socket, text, ignores_unknown=self._service.settings.unknown_keys == "ignore")
        if len(text) > LARGE_BYTES:
            publications = self._publications_of(socket)
            publications.add(Publication(publications, "", message, obey=self._obey_large))
            return
        try:
            self._obey(socket, message)
        except MISTAKES as error:
            message.refuse(error)

    def _obey(self, socket: "Socket", message: Message) -> None:
        op = self._envelope(message)
        _HANDLERS[op](self, socket, message)

    def _envelope(self, message: Message) -> str:
        envelope = _envelope.decode(message.text)
        message.request_id = bytes(envelope.request_id)
        if not isinstance(envelope.op, str) or envelope.op not in _HANDLERS:
            raise NotACommand("op must be subscribe, unsubscribe, publish or ping")
        return envelope.op

    async def _obey_large(self, publication: Publication) -> None:
        """Obey a large message. Without its records, it has to be small."""
        message, socket = publication.message, publication.queue.socket
        try:
            around = await asyncio.to_thread(codec.without_records, message.text)
        except ApiError as error:
            if error.code == "invalid_request":
                raise NotACommand(error.message) from None
            raise
        whole, message.text = message.text, around
        if self._envelope(message) != "publish":
            self._obey(socket, message)
            publication.is_over = True
            return
        publication.name = self._judge(socket, message)
        message.text = whole
        await publication.append_large()

    def on_binary(self, socket: "Socket") -> None:
        socket.send(error_message("unsupported_message", "messages are JSON text"))

    def on_refused(self, socket: "Socket", error: ApiError) -> None:
        socket.send(error_message(error.code, error.message, error.detail))

    # Commands

    def _on_ping(self, socket: "Socket", message: Message) -> None:
        message.decode(_ping, message.text)
        message.refuse_unknown_fields()
        socket.send(b'{"op":"pong","request_id":%b}' % message.request_id)

    def _on_subscribe(self, socket: "Socket", message: Message) -> None:
        _need(socket, READ)
        command = message.decode(_subscribe, message.text)
        starts = dict(command.topics or {})
        if command.topic is not None:
            starts[command.topic] = Start(command.from_seq, command.tail, command.epoch)
        options = command.options(MAX_LIMIT)
        openings = open_topics(
            self._service, socket.key, starts, message.refuse_unknown_fields, lenient=command.lenient
        )
        if len(socket.by_name.keys() | openings.keys()) > MAX_SUBSCRIPTIONS:
            raise limit_reached("max_subscriptions", MAX_SUBSCRIPTIONS)
        described = _encode({name: opening.describe() for name, opening in openings.items()})
        socket.send(b'{"op":"subscribed","request_id":%b,"topics":%b}' % (message.request_id, described))
        for name, opening in openings.items():
            socket.subscribe(Subscription(socket, name, options, seq=opening.seq, epoch=opening.epoch))

    def _on_unsubscribe(self, socket: "Socket", message: Message) -> None:
        command = message.decode(_unsubscribe, message.text)
        names = list(dict.fromkeys([*([command.topic] if command.topic else []), *(command.topics or [])]))
        if not names:
            raise invalid("topic or topics is required")
        check_names(socket.key, names)
        message.refuse_unknown_fields()
        for name in names:
            socket.unsubscribe(name)
        listed = _encode(names)
        socket.send(b'{"op":"unsubscribed","request_id":%b,"topics":%b}' % (message.request_id, listed))

    def _on_publish(self, socket: "Socket", message: Message) -> None:
        topic = self._judge(socket, message)
        publications = self._publications_of(socket)
        publications.add(Publication(publications, topic, message))

    def _publications_of(self, socket: "Socket") -> Publications:
        if self._publications is None:
            self._publications = Publications(self._service, socket)
        return self._publications

    def _judge(self, socket: "Socket", message: Message) -> str:
        """The topic of a publish that may come in."""
        _need(socket, WRITE)
        try:
            command = _publish.decode(message.text)
        except UNDECODABLE as error:
            _note_names(message)
            raise undecodable(error) from None
        topic = command.topic
        if topic is None or not bytes(command.records):
            _note_names(message)
            raise NotACommand("publish needs topic and records")
        if bytes(command.config) != _NULL:
            _need(socket, ADMIN)
        check_names(socket.key, [topic])
        return topic


_HANDLERS: "dict[str, Callable[[Commands, Socket, Message], None]]" = {
    "subscribe": Commands._on_subscribe,
    "unsubscribe": Commands._on_unsubscribe,
    "publish": Commands._on_publish,
    "ping": Commands._on_ping,
}


def _note_names(message: Message) -> None:
    """Something is wrong with it already; the names in it are told together with that."""
    with suppress(ApiError):
        codec.explain(message.text, message.note, publish=True)


def _need(socket: "Socket", scopes: int) -> None:
    if socket.key is not None and not socket.key.can(scopes):
        raise ApiError("forbidden", "the key lacks a scope this command needs")

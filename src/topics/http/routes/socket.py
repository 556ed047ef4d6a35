"""What may be said over a WebSocket: subscribe, unsubscribe, publish, ping. Mistakes never close it."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from wsproto.frame_protocol import CloseReason

from topics.flow.watch.fanout import Fanout
from topics.flow.watch.subscription import Subscription
from topics.http.door.keys import ADMIN, READ, WRITE, is_revoked
from topics.http.door.stream_slots import StreamSlots
from topics.http.routes.fields import decode
from topics.http.routes.service import Service
from topics.http.routes.socket_publishing import (
    MISTAKES,
    NotACommand,
    Publication,
    Publications,
    error_message,
    refusal,
)
from topics.http.routes.subscriptions import Start, Wanted, check_names, open_topics
from topics.http.wire.event_stream import REVOKED
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.http.wire.websocket import Socket, accept_token, upgraded
from topics.values import MAX_LIMIT, ApiError, invalid

_encode = msgspec.json.encode
_NULL = b"null"


class _Envelope(msgspec.Struct, gc=False):
    op: Any = None
    # Kept as the text it came in, to be sent back the same.
    request_id: Raw = Raw(_NULL)


class _Subscribe(Wanted, kw_only=True, gc=False):
    topic: str | None = None
    from_seq: int = 0
    tail: bool = False
    epoch: int | UnsetType = UNSET
    topics: dict[str, Start] | None = None
    lenient: bool = False


class _Unsubscribe(msgspec.Struct, gc=False):
    topic: str | None = None
    topics: list[str] | None = None


class _Publish(msgspec.Struct, gc=False):
    """The rest of the message is a write request as HTTP takes it."""

    topic: str | None = None
    records: Raw = Raw(b"")
    config: Raw = Raw(_NULL)
    return_seqs: bool = True


_envelope = msgspec.json.Decoder(_Envelope)
_subscribe = msgspec.json.Decoder(_Subscribe)
_unsubscribe = msgspec.json.Decoder(_Unsubscribe)
_publish = msgspec.json.Decoder(_Publish)


class SocketRoutes:
    def __init__(self, service: Service, fanout: Fanout, slots: StreamSlots) -> None:
        self._service = service
        self._fanout = fanout
        self._slots = slots
        self.sockets: set[Socket] = set()
        # Of the sockets that have published something.
        self._publications: dict[Socket, Publications] = {}
        self._commands: dict[str, Callable[[Socket, bytes, bytes], None]] = {
            "subscribe": self._on_subscribe,
            "unsubscribe": self._on_unsubscribe,
            "publish": self._on_publish,
            "ping": self._on_ping,
        }

    def routes(self) -> list[Route]:
        # Any valid key may connect; each command is checked on its own.
        return [Route("GET", "/v0/ws", self.connect, websocket=True)]

    def connect(self, exchange: Exchange) -> None:
        token = accept_token(exchange.headers)
        give_back = self._slots.take(exchange.key)
        socket = Socket(
            self._fanout,
            upgraded(exchange, token),
            exchange.key,
            self,
            self._service.settings.max_body_bytes,
        )
        self.sockets.add(socket)

        def closed() -> None:
            self.sockets.discard(socket)
            self._publications.pop(socket, None)
            give_back()

        socket.start(closed)

    def end_sockets(self) -> None:
        """The server stops."""
        for socket in tuple(self.sockets):
            socket.say_goodbye(error_message(_NULL, "server_shutting_down", "the server is shutting down"))

    def end_revoked(self) -> None:
        """Keys were removed."""
        for socket in tuple(self.sockets):
            if is_revoked(socket.key):
                socket.say_goodbye(
                    error_message(_NULL, "unauthorized", REVOKED), CloseReason.POLICY_VIOLATION
                )

    # Messages

    def on_text(self, socket: Socket, message: bytes) -> None:
        request_id = _NULL
        try:
            envelope = _envelope.decode(message)
            request_id = bytes(envelope.request_id)
            command = self._commands.get(envelope.op) if isinstance(envelope.op, str) else None
            if command is None:
                raise NotACommand("op must be subscribe, unsubscribe, publish or ping")
            command(socket, message, request_id)
        except MISTAKES as error:
            socket.send(refusal(request_id, error))

    def on_binary(self, socket: Socket) -> None:
        socket.send(error_message(_NULL, "unsupported_message", "messages are JSON text"))

    def on_too_large(self, socket: Socket) -> None:
        most = self._service.settings.max_body_bytes
        socket.send(error_message(_NULL, "payload_too_large", f"a message has at most {most} bytes"))

    # Commands

    def _on_ping(self, socket: Socket, message: bytes, request_id: bytes) -> None:
        socket.send(b'{"op":"pong","request_id":%b}' % request_id)

    def _on_subscribe(self, socket: Socket, message: bytes, request_id: bytes) -> None:
        _need(socket, READ)
        command = decode(_subscribe, message)
        starts = dict(command.topics or {})
        if command.topic is not None:
            starts[command.topic] = Start(command.from_seq, command.tail, command.epoch)
        options = command.options(MAX_LIMIT)
        openings = open_topics(self._service, socket.key, starts, lenient=command.lenient)
        described = {name: opening.describe() for name, opening in openings.items()}
        socket.send(b'{"op":"subscribed","request_id":%b,"topics":%b}' % (request_id, _encode(described)))
        for name, opening in openings.items():
            socket.subscribe(Subscription(socket, name, options, seq=opening.seq, epoch=opening.epoch))

    def _on_unsubscribe(self, socket: Socket, message: bytes, request_id: bytes) -> None:
        command = decode(_unsubscribe, message)
        names = list(dict.fromkeys([*([command.topic] if command.topic else []), *(command.topics or [])]))
        if not names:
            raise invalid("topic or topics is required")
        check_names(socket.key, names)
        for name in names:
            socket.unsubscribe(name)
        socket.send(b'{"op":"unsubscribed","request_id":%b,"topics":%b}' % (request_id, _encode(names)))

    def _on_publish(self, socket: Socket, message: bytes, request_id: bytes) -> None:
        _need(socket, WRITE)
        command = decode(_publish, message)
        topic = command.topic
        if topic is None or not bytes(command.records):
            raise NotACommand("publish needs topic and records")
        if bytes(command.config) != _NULL:
            _need(socket, ADMIN)
        check_names(socket.key, [topic])
        publications = self._publications.get(socket)
        if publications is None:
            publications = self._publications[socket] = Publications(self._service, socket)
        publications.add(Publication(publications, topic, message, request_id, with_seqs=command.return_seqs))


def _need(socket: Socket, scopes: int) -> None:
    if socket.key is not None and not socket.key.can(scopes):
        raise ApiError("forbidden", "the key lacks a scope this command needs")

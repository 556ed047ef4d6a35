"""What may be said over a WebSocket: subscribe, unsubscribe, publish, ping. Mistakes never close it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Raw

from topics.flow.watch.fanout import Fanout
from topics.flow.watch.subscription import Subscription, WatchOptions
from topics.http.door.keys import ADMIN, READ, WRITE
from topics.http.door.stream_slots import StreamSlots
from topics.http.routes.fields import clamped, decode, node_set
from topics.http.routes.records import append_result
from topics.http.routes.service import Service, check_dead_letter
from topics.http.routes.watch_topics import Parts, Start, check_names, open_topics
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route
from topics.http.wire.websocket import Socket, accept_token, upgraded
from topics.log.write.batch import parse_append
from topics.values.errors import ApiError, invalid
from topics.values.settings import DEFAULT_READ_BYTES, MAX_LIMIT, MAX_READ_BYTES

_encode = msgspec.json.encode
_NULL = b"null"


class _Envelope(msgspec.Struct, gc=False):
    op: Any = None
    # Kept as the text it came in, to be sent back the same.
    request_id: Raw = Raw(_NULL)


class _Subscribe(Parts, kw_only=True, gc=False):
    topic: str | None = None
    from_seq: int = 0
    tail: bool = False
    topics: dict[str, Start] | None = None
    limit: int = 0
    max_batch_bytes: int = 0
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


class _NotACommand(Exception):
    """The message is no object, names no known operation, or lacks what the operation cannot do without."""


def error_message(request_id: bytes, code: str, message: str) -> bytes:
    return b'{"op":"error","request_id":%b,"code":%b,"message":%b}' % (
        request_id,
        _encode(code),
        _encode(message),
    )


class SocketRoutes:
    def __init__(self, service: Service, fanout: Fanout, slots: StreamSlots) -> None:
        self._service = service
        self._fanout = fanout
        self._slots = slots
        self.sockets: set[Socket] = set()
        self._commands: dict[str, Callable[[Socket, bytes, bytes], None]] = {
            "subscribe": self._on_subscribe,
            "unsubscribe": self._on_unsubscribe,
            "publish": self._on_publish,
            "ping": self._on_ping,
        }

    def routes(self) -> list[Route]:
        # Any valid key may connect; each command is checked on its own.
        return [Route(method="GET", template="/v0/ws", handler=self.connect, websocket=True)]

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
            give_back()

        socket.start(closed)

    def end_sockets(self) -> None:
        """The server stops."""
        for socket in tuple(self.sockets):
            socket.say_goodbye(error_message(_NULL, "server_shutting_down", "the server is shutting down"))

    # Messages

    def on_text(self, socket: Socket, message: bytes) -> None:
        request_id = _NULL
        try:
            envelope = _envelope.decode(message)
            request_id = bytes(envelope.request_id)
            command = self._commands.get(envelope.op) if isinstance(envelope.op, str) else None
            if command is None:
                raise _NotACommand("op must be subscribe, unsubscribe, publish or ping")
            command(socket, message, request_id)
        except ApiError as error:
            socket.send(error_message(request_id, error.code, error.message))
        except (_NotACommand, msgspec.DecodeError, RecursionError) as error:
            socket.send(error_message(request_id, "invalid_json", str(error)))

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
            starts[command.topic] = Start(command.from_seq, command.tail)
        options = WatchOptions(
            limit=clamped(command.limit, MAX_LIMIT, MAX_LIMIT, "limit"),
            max_bytes=clamped(command.max_batch_bytes, DEFAULT_READ_BYTES, MAX_READ_BYTES, "max_batch_bytes"),
            nodes=node_set(command.node),
            shape=command.shape(),
        )
        openings = open_topics(self._service, socket.key, starts, lenient=command.lenient)
        described = {name: opening.describe() for name, opening in openings.items()}
        socket.send(b'{"op":"subscribed","request_id":%b,"topics":%b}' % (request_id, _encode(described)))
        for name, opening in openings.items():
            socket.subscribe(Subscription(socket, name, options, seq=opening.seq, epoch=opening.topic.id))

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
        started = perf_counter()
        _need(socket, WRITE)
        command = decode(_publish, message)
        topic = command.topic
        if topic is None or not bytes(command.records):
            raise _NotACommand("publish needs topic and records")
        if bytes(command.config) != _NULL:
            _need(socket, ADMIN)
        check_names(socket.key, [topic])
        request = parse_append(message)
        if request.config is not None:
            check_dead_letter(socket.key, request.config)
        if request.backpressure:
            self._service.refuse_under_pressure(topic)

        def done(op: Any) -> None:
            result = append_result(op, started, with_seqs=command.return_seqs)
            socket.send(b'{"op":"ack","request_id":%b,%b' % (request_id, result[1:]))

        self._service.engine.append(
            topic,
            request,
            done,
            lambda error: socket.send(error_message(request_id, error.code, error.message)),
        )


def _need(socket: Socket, scopes: int) -> None:
    if socket.key is not None and not socket.key.can(scopes):
        raise ApiError("forbidden", "the key lacks a scope this command needs")

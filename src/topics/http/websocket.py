"""WebSocket: the handshake, frames in both directions, and what happens to a connection in between.

What the messages mean is in `http.routes.streams.socket`.
"""

import asyncio
import base64
import binascii
from collections.abc import Collection, Iterator
from hashlib import sha1
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.events import Event as FrameEvent
from wsproto.frame_protocol import CloseReason

from topics.core import ApiError, invalid
from topics.flow.watch.delivery import RECORD, Delivery, Event, Subscription
from topics.flow.watch.fanout import Fanout
from topics.http.admission.admit import SOCKET_PROTOCOL, offered_protocols
from topics.http.admission.auth import ApiKey
from topics.http.admission.limits import SMALL_BYTES
from topics.http.context import TURN_S
from topics.http.exchange import Exchange
from topics.http.open_streams import REVOKED, SHUTTING_DOWN, OpenStreams, error_message
from topics.http.request import PROTOCOL, WEBSOCKET
from topics.http.stream import BackpressuredStream, Upgraded

if TYPE_CHECKING:
    from topics.http.routes.socket import Commands

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
# How long the client may take to answer our goodbye.
CLOSE_S = 1.0
# So much at a time: for every frame, what is left behind it is copied.
_PIECE_BYTES = 16 * 1024


def accept_token(headers: dict[bytes, bytes]) -> bytes:
    """The proof that we speak the protocol; raises when the request does not ask for it properly.

    HTTP/2 needs none: there it has been asked for by a CONNECT, which names the protocol.
    """
    if headers.get(PROTOCOL) == WEBSOCKET:
        _require_version(headers)
        return b""
    asked = [token.strip().lower() for token in headers.get(b"connection", b"").split(b",")]
    if headers.get(b"upgrade", b"").strip().lower() != b"websocket" or b"upgrade" not in asked:
        raise invalid("this path speaks WebSocket: Connection: Upgrade and Upgrade: websocket are needed")
    _require_version(headers)
    key = headers.get(b"sec-websocket-key", b"").strip()
    try:
        nonce = base64.b64decode(key, validate=True)
    except binascii.Error:
        nonce = b""
    if len(nonce) != _KEY_BYTES:
        raise invalid("Sec-WebSocket-Key must be 16 bytes in base64")
    return base64.b64encode(sha1(key + _GUID, usedforsecurity=False).digest())


def _require_version(headers: dict[bytes, bytes]) -> None:
    if headers.get(b"sec-websocket-version", b"").strip() != b"13":
        raise invalid("Sec-WebSocket-Version must be 13")


def upgraded(exchange: Exchange, token: bytes) -> Upgraded:
    headers = [(b"Sec-WebSocket-Accept", token)] if token else []
    # Browsers insist that one of those they offered is chosen.
    if SOCKET_PROTOCOL in offered_protocols(exchange):
        headers.append((b"Sec-WebSocket-Protocol", SOCKET_PROTOCOL))
    connection = exchange.upgrade()
    connection.begin(headers)
    return connection


def text_frame(payload: bytes) -> bytes:
    """A whole message. Servers do not mask, so the bytes are the same for every client."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)


def _message(event: Event, epoch: int) -> bytes:
    """Records come with the epoch of their topic: an event stream has that in its ids."""
    if event.kind == RECORD:
        return b'{"op":"record",%b,"epoch":%d}' % (event.body, epoch)
    return b'{"op":"%b",%b}' % (event.kind.replace("-", "_").encode(), event.body)


class Socket(BackpressuredStream):
    """One client. Its subscriptions end with it."""

    _held: Upgraded

    def __init__(
        self,
        streams: OpenStreams,
        fanout: Fanout,
        connection: Upgraded,
        key: ApiKey | None,
        conversation: "Commands",
        max_bytes: int,
    ) -> None:
        # A socket that does not read stalls only itself, for as long as it likes.
        super().__init__(connection, None)
        self._streams = streams
        self._fanout = fanout
        self.key = key
        self._conversation = conversation
        self._max_bytes = max_bytes
        # The bytes of it that the arriving message takes.
        self._room = connection.request_room
        self._room_bytes = 0
        self._protocol = Connection(ConnectionType.SERVER)
        # The frames that have arrived and are not processed yet, if there may be any.
        self._rest: Iterator[FrameEvent] | None = None
        # The message that is arriving, and its size so far.
        self._pieces = bytearray()
        self._received = 0
        # Why it is not kept.
        self._refusal: ApiError | None = None
        # The last message waits for its turn.
        self._waits = False
        self._closer: asyncio.TimerHandle | None = None
        # Since when the client has said nothing, and whether it was asked. The names are those of `Beating`.
        self.heartbeat_s = streams.ping_s
        self.last_sent = asyncio.get_running_loop().time()
        self._pinged = False
        self.by_name: dict[str, Subscription] = {}

    def start(self) -> None:
        self._streams.add(self)
        self._held.on_close(self.on_closed)
        self._held.set_receiver(self._receive)

    @property
    def closed(self) -> bool:
        return self._held.closed

    # Out

    @property
    def subscriptions(self) -> Collection[Subscription]:
        return self.by_name.values()

    def subscribe(self, subscription: Subscription) -> None:
        """Takes the place of an earlier subscription to the same topic."""
        self.unsubscribe(subscription.name)
        self.by_name[subscription.name] = subscription
        self._fanout.attach(subscription)

    def unsubscribe(self, name: str) -> None:
        subscription = self.by_name.pop(name, None)
        if subscription is not None:
            self._fanout.detach(subscription)

    def deliver(self, subscription: Subscription, delivery: Delivery) -> None:
        data = delivery.shared.get("ws")
        if data is None:
            messages = [_message(event, delivery.epoch) for event in delivery.events]
            data = delivery.shared["ws"] = b"".join(map(text_frame, messages))
        if data:
            self.write(data)

    def ended(self, subscription: Subscription) -> None:
        del self.by_name[subscription.name]

    def send(self, message: bytes) -> None:
        if self._protocol.state is ConnectionState.OPEN:
            self.write(text_frame(message))

    def shut_down(self) -> None:
        self.say_goodbye(error_message("server_shutting_down", SHUTTING_DOWN))

    def revoke(self) -> None:
        self.say_goodbye(error_message("unauthorized", REVOKED), CloseReason.POLICY_VIOLATION)

    def say_goodbye(self, message: bytes, reason: CloseReason = CloseReason.GOING_AWAY) -> None:
        """Our side ends it; the client gets a moment to agree, so that it can read everything first."""
        if self._protocol.state is not ConnectionState.OPEN:
            return
        self.release()
        farewell = self._protocol.send(CloseConnection(code=reason))
        self._held.write(text_frame(message) + farewell)
        self._closer = asyncio.get_running_loop().call_later(CLOSE_S, self.hang_up)

    def beat(self) -> None:
        """Ping a client that has sent nothing for a while, unless the server does not read from it."""
        if self.stalled or self._waits or self._protocol.state is not ConnectionState.OPEN:
            return
        if self._pinged:
            self.hang_up()
        else:
            self._pinged = True
            self.write(self._protocol.send(Ping()))

    def on_pressure(self) -> None:
        # A client that does not read answers gets to ask no more questions.
        self._choose_reading()

    def on_relief(self) -> None:
        self._choose_reading()
        self._fanout.resume(self.subscriptions)

    def release(self) -> None:
        super().release()
        for subscription in tuple(self.subscriptions):
            self._fanout.detach(subscription)

    def set_aside(self, waits: bool) -> None:
        """Note whether the last message waits for its turn. Meanwhile, the socket is not read."""
        if waits is not self._waits:
            self._waits = waits
            if not waits:
                self._leave_room()
            self._choose_reading()

    def _choose_reading(self) -> None:
        if self.stalled or self._waits or self._rest is not None:
            self._held.pause_reading()
        else:
            self._held.resume_reading()

    def on_closed(self) -> None:
        super().on_closed()
        if self._closer is not None:
            self._closer.cancel()
        self._leave_room()
        self._streams.remove(self)
        # Each of them refers to its socket.
        self.by_name.clear()

    # In

    def _receive(self, data: bytes) -> None:
        if self._protocol.state not in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            return
        self.last_sent = asyncio.get_running_loop().time()
        self._pinged = False
        frames = self._frames(data)
        if self._rest is None:
            self._read(frames)
        else:
            self._rest = chain(self._rest, frames)

    def _frames(self, data: bytes) -> Iterator[FrameEvent]:
        protocol = self._protocol
        for at in range(0, len(data), _PIECE_BYTES):
            protocol.receive_data(data[at : at + _PIECE_BYTES])
            yield from protocol.events()

    def _read(self, frames: Iterator[FrameEvent]) -> None:
        """As much as there is time for in one turn of the loop. Nothing more is received before the rest."""
        ends = perf_counter() + TURN_S
        was_behind = self._rest is not None
        for event in frames:
            if isinstance(event, CloseConnection):
                self._answer_close(event)
                return
            self._hear(event)
            if perf_counter() > ends:
                self._rest = frames
                self._choose_reading()
                asyncio.get_running_loop().call_soon(self._go_on)
                return
        self._rest = None
        if was_behind:
            self._choose_reading()

    def _go_on(self) -> None:
        if self._rest is not None and not self.closed:
            self._read(self._rest)

    def _hear(self, event: FrameEvent) -> None:
        if self._protocol.state is not ConnectionState.OPEN:
            return
        if isinstance(event, TextMessage):
            self._take(event.data.encode(), is_last=event.message_finished)
        elif isinstance(event, BytesMessage):
            if event.message_finished:
                self._conversation.on_binary(self)
        elif isinstance(event, Ping):
            self.write(self._protocol.send(event.response()))

    def _take(self, piece: bytes, *, is_last: bool) -> None:
        """Add a piece to the message. A message that is too large is dropped, and refused when it ends."""
        self._received += len(piece)
        if self._refusal is None:
            self._refusal = self._judge_size()
        if self._refusal is None:
            self._pieces += piece
        else:
            self._pieces.clear()
        if not is_last:
            return
        pieces, refusal = self._pieces, self._refusal
        self._pieces, self._received, self._refusal = bytearray(), 0, None
        if refusal is not None:
            self._conversation.on_refused(self, refusal)
        else:
            self._conversation.on_text(self, bytes(pieces))
        # A message that waits keeps its room.
        if not self._waits:
            self._leave_room()

    def _judge_size(self) -> ApiError | None:
        """Return the refusal of a message that is too large, as far as it has arrived."""
        if self._received > self._max_bytes:
            return ApiError("payload_too_large", f"a message has at most {self._max_bytes} bytes")
        if self._received > max(SMALL_BYTES, self._room_bytes):
            try:
                self._room.take(self._received - self._room_bytes)
            except ApiError as error:
                return error
            self._room_bytes = self._received
        return None

    def _leave_room(self) -> None:
        self._room.give(self._room_bytes)
        self._room_bytes = 0

    def _answer_close(self, event: CloseConnection) -> None:
        """The client's goodbye, its answer to ours, or the end of a client that broke the protocol."""
        if self._protocol.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._held.write(self._protocol.send(event.response()))
        self.hang_up()

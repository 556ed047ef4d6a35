"""One request of an HTTP/2 connection, and its answer: to the exchange, a connection of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from topics.http.door.admission import too_large
from topics.http.wire.answer_heads import JSON, HeaderList
from topics.http.wire.channel import CLOSED, RAW, STREAM, WEBSOCKET
from topics.http.wire.context import BODY, WORKING, WRITE
from topics.http.wire.exchange import Exchange
from topics.http.wire.http2.request_head import RequestHead
from topics.http.wire.pipeline import Pipeline
from topics.values import ApiError, invalid

if TYPE_CHECKING:
    from topics.http.wire.http2.connection import Http2Connection

# Smaller ones are not counted. A connection has a hundred lanes, so this is less than for HTTP/1.1.
_UNCOUNTED_BYTES = 8 * 1024

# What a WebSocket that listens again gets at once, as it would from a socket.
_PIECE_BYTES = 64 * 1024


class LaneTransport(asyncio.Transport):
    """What the exchange takes for a socket. Bytes wait here until the windows of the client let them go."""

    def __init__(self, connection: Http2Connection, lane: Lane) -> None:
        super().__init__()
        self._connection = connection
        self._lane = lane
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self.sent = 0
        # Nothing more is written to it.
        self._is_closing = False
        self.is_over = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self._connection.transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing() or not data:
            return
        self._waiting.append(memoryview(data))
        self._size += len(data)
        self._connection.unsent += len(data)
        self._connection.show_ready(self._lane)
        if self._size > self._lane.context.limits.write_high_bytes and not self._lane.choked:
            self._lane.pause_writing()

    def pause_reading(self) -> None:
        """The lane knows."""

    def resume_reading(self) -> None:
        self._lane.receive_held()

    def close(self) -> None:
        if not self.is_closing():
            self._is_closing = True
            self._connection.show_ready(self._lane)

    def abort(self) -> None:
        self.reset(ErrorCodes.INTERNAL_ERROR)

    def reset(self, code: ErrorCodes) -> None:
        """End it at once, and say so to the client."""
        if not self.is_over:
            self.end()
            self._connection.reset(self._lane, code)

    def end(self) -> None:
        """Whatever still waits is not sent any more."""
        self._is_closing = self.is_over = True
        self._waiting.clear()
        self._connection.unsent -= self._size
        self._size = 0

    @property
    def is_sent(self) -> bool:
        return self._is_closing and not self._waiting

    def take(self, most: int) -> bytes:
        """The next bytes to send, at most so many."""
        pieces: list[memoryview] = []
        left = most
        while self._waiting and left > 0:
            first = self._waiting.popleft()
            if len(first) > left:
                self._waiting.appendleft(first[left:])
                first = first[:left]
            pieces.append(first)
            left -= len(first)
        taken = most - left
        self._size -= taken
        self.sent += taken
        self._connection.unsent -= taken
        if self._lane.choked and self._size <= self._lane.context.limits.write_low_bytes:
            self._lane.resume_writing()
        return pieces[0].tobytes() if len(pieces) == 1 else b"".join(pieces)


class Lane(Pipeline):
    __slots__ = (
        "_connection",
        "_exchange",
        "_head",
        "_held_input",
        "_held_size",
        "_is_answered",
        "_over",
        "stream_id",
    )

    transport: LaneTransport
    raw_status = 200

    def __init__(self, connection: Http2Connection, stream_id: int, head: RequestHead) -> None:
        super().__init__(connection.context)
        self.stream_id = stream_id
        self.transport = LaneTransport(connection, self)
        self._connection = connection
        self._head = head
        self._exchange = exchange = Exchange(self, self._method(), head.target, head.headers)
        # As there, a body needs no chunks, and 100 is not told in text.
        exchange.http10 = True
        self._is_answered = False
        # The client has sent everything.
        self._over = False
        # What has come for a WebSocket that does not listen now, and how much of the windows that takes.
        self._held_input = bytearray()
        self._held_size = 0

    def _method(self) -> bytes:
        """What opens a WebSocket by CONNECT is a GET otherwise; no other route is for that."""
        head = self._head
        if head.protocol != WEBSOCKET:
            return head.method
        route = self.context.routes.find(b"GET", head.target).route
        return b"GET" if route is not None and route.websocket else head.method

    # What the client sends

    def start(self) -> None:
        """It is its turn: at once, unless the client leaves too many answers unread."""
        exchange = self._exchange
        if exchange.answered:
            return  # refused while it waited
        if not self._head.is_sound:
            exchange.refuse_later(invalid("the request is not valid HTTP"), 400)
        elif len(self._head.target) > self.context.limits.target_bytes:
            exchange.refuse_later(invalid("the request target is too long"), 414)
        elif self._head.protocol not in (b"", WEBSOCKET):
            exchange.refuse_later(invalid("the only protocol that can be spoken instead is websocket"), 501)
        self.take(exchange)
        self._go_on()

    def _go_on(self) -> None:
        """With what has come of it meanwhile; it may be answered already."""
        exchange = self._exchange
        if self._head.size > _UNCOUNTED_BYTES and not exchange.answered:
            self._take_room()
        if self._over or self._head.protocol:
            self.completed(exchange)
        elif b"expect" in exchange.headers and not exchange.answered:
            self._send_headers([(b":status", b"100")])

    def receive(self, piece: bytes) -> None:
        if self.mode == RAW:
            self.ignore(piece)
            return
        exchange = self._exchange
        exchange.received += len(piece)
        if self._is_answered:
            # Read and forgotten, so that the client gets to read the answer; but not for ever.
            if exchange.received > self.context.limits.discard_bytes and self.transport.is_over:
                self._connection.reset(self, ErrorCodes.NO_ERROR)
            return
        if exchange.answered or self.mode or exchange.complete:
            return
        if exchange.pieces is None:
            exchange.pieces = BytesIO()
        exchange.pieces.write(piece)
        if exchange.received > _UNCOUNTED_BYTES:
            self._take_room()

    def _take_room(self) -> None:
        exchange, context = self._exchange, self.context
        try:
            if exchange.received > context.max_body_bytes:
                raise too_large(context.max_body_bytes)
            exchange.take_room(context.request_room, exchange.received + self._head.size)
        except ApiError as error:
            exchange.pieces = None
            exchange.fail(error)

    # A WebSocket that is not read

    @property
    def holds_input(self) -> bool:
        return self.mode == RAW and (self._reading_paused or bool(self._held_input))

    def hold(self, piece: bytes, size: int) -> None:
        self._held_input += piece
        self._held_size += size

    def receive_held(self) -> None:
        """It listens again, until it has heard too much."""
        while self._held_input and self.mode == RAW and not self._reading_paused:
            piece = bytes(self._held_input[:_PIECE_BYTES])
            del self._held_input[:_PIECE_BYTES]
            self.ignore(piece)
        if not self._held_input:
            self.let_input_go()
            if self._over:
                self.transport.close()
        self._connection.flush()

    def let_input_go(self) -> None:
        """What it took of the windows is there for others."""
        size, self._held_size = self._held_size, 0
        self._connection.take_note(self.stream_id, size)

    def receive_end(self) -> None:
        self._over = True
        if self.mode == RAW:
            if not self._held_input:
                self.transport.close()
            return
        if self._current is self._exchange:
            self.completed(self._exchange)
        elif self.transport.is_over:
            self._connection.forget(self)

    @property
    def is_received(self) -> bool:
        return self._over

    def progress(self) -> tuple[int, int]:
        if self.transport.get_write_buffer_size():
            return WRITE, self.transport.sent // self.context.limits.write_step_bytes
        if not self._over:
            return BODY, self._exchange.received // self.context.limits.body_step_bytes
        return WORKING, 0

    # What it is answered

    def send(self, body: bytes) -> None:
        self._answer(200, JSON, body, None)

    def send_special(
        self, exchange: Exchange, status: int, content_type: bytes, body: bytes, headers: HeaderList | None
    ) -> None:
        self._answer(status, content_type, body, exchange.with_own(headers))

    def _answer(self, status: int, content_type: bytes, body: bytes, headers: HeaderList | None) -> None:
        self._current = None
        if self.transport.is_closing():
            return
        self._is_answered = True
        length = None if status == 204 else len(body)
        self._begin(status, content_type, headers, length)
        if self._exchange.method_bytes != b"HEAD":
            self.transport.write(body)
        self.transport.close()

    def begin_stream(self, content_type: bytes, headers: HeaderList | None, *, chunked: bool) -> None:
        self._is_answered = True
        self._begin(200, content_type, headers, None)
        self._connection.flush()

    def begin_raw(self, headers: HeaderList) -> None:
        self._is_answered = True
        self._send_headers([(b":status", b"200"), *((name.lower(), value) for name, value in headers)])
        self._connection.flush()

    def _begin(
        self, status: int, content_type: bytes, headers: HeaderList | None, length: int | None
    ) -> None:
        self._send_headers(self.context.heads.fields(status, content_type, headers, length))

    def _send_headers(self, fields: HeaderList) -> None:
        try:
            self._connection.h2.send_headers(self.stream_id, fields)
        except ProtocolError:
            # The client has taken it back in this very moment.
            self.transport.abort()

    def send_some(self) -> int:
        """One frame, as far as the windows allow. Returns its size; -1 when nothing can be sent now."""
        transport, h2 = self.transport, self._connection.h2
        if transport.is_over:
            return -1
        room = min(h2.local_flow_control_window(self.stream_id), h2.max_outbound_frame_size)
        data = transport.take(room) if room > 0 else b""
        if not data and not transport.is_sent:
            return -1
        h2.send_data(self.stream_id, data, end_stream=transport.is_sent)
        if transport.is_sent:
            transport.end()
            self._connection.sent(self)
        return len(data)

    def ends_unread(self) -> bool:
        """The client waits for a word before it sends the body, or has one that is too large to be read."""
        exchange = self._exchange
        if self._head.protocol:
            return True
        return b"expect" in exchange.headers or exchange.received > self.context.limits.discard_bytes

    # The rest of a connection that it does not have

    def end(self, *, unread: bool) -> None:
        self._current = None
        self.transport.close()

    def parse_more(self) -> bool:
        return False

    def choose_reading(self) -> None:
        """The connection is read, whatever becomes of one request."""

    @property
    def is_stream(self) -> bool:
        return self.mode in (STREAM, RAW, CLOSED)

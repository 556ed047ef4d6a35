"""One request of an HTTP/2 connection, and its reply."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from topics.core import ApiError, invalid
from topics.http.admission.admit import too_large
from topics.http.context import BODY, WORKING, WRITE, StallClock
from topics.http.dispatch import dispatch, handle
from topics.http.exchange import Exchange
from topics.http.request import PROTOCOL, WEBSOCKET
from topics.http.request_parser import host_of, target_too_long
from topics.http.stream import OpenStream, StreamOutput, Upgraded

if TYPE_CHECKING:
    from topics.http.http2 import Http2Connection
    from topics.http.response_heads import HeaderList

_TARGET = re.compile(rb"/[!-~]*|\*")
_METHOD = re.compile(rb"[A-Z]+")
# RFC 9113 counts this for a field besides its bytes.
_FIELD_BYTES = 32


class RequestHead(NamedTuple):
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    # The protocol that the client wants to speak on this stream, if it is not HTTP.
    protocol: bytes
    # The memory that it may take.
    size: int
    # Otherwise it is answered with 400.
    is_sound: bool


def read_head(fields: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    size = 0
    for name, value in fields:
        size += len(name) + len(value) + _FIELD_BYTES
        known = pseudo if name[:1] == b":" else headers
        known[name] = known[name] + b", " + value if name in known else value
    authority = pseudo.get(b":authority")
    if authority is not None:
        headers[b"host"] = authority
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    host = host_of(target, headers)
    length = headers.get(b"content-length")
    is_sound = (
        _METHOD.fullmatch(method) is not None
        and _TARGET.fullmatch(target) is not None
        and bool(host)
        and (length is None or length.isdigit())
    )
    if host is not None:
        headers[b"host"] = host
    protocol = pseudo.get(PROTOCOL, b"")
    if protocol:
        headers[PROTOCOL] = protocol
    return RequestHead(bytes(method), bytes(target), headers, bytes(protocol), size, is_sound)


# Smaller bodies take no room. A connection has a hundred streams, so this is less than for HTTP/1.1.
_UNCOUNTED_BYTES = 8 * 1024

# The bytes that an upgraded protocol gets at once when it reads again, as from a socket.
_PIECE_BYTES = 64 * 1024


class OutgoingBuffer:
    """Bytes that wait until the windows of the client let them go."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size = 0

    def append(self, data: bytes) -> None:
        self._pieces.append(memoryview(data))
        self.size += len(data)

    def take(self, most: int) -> bytes:
        """Remove and return the next bytes, at most so many."""
        pieces: list[memoryview] = []
        left = most
        while self._pieces and left > 0:
            first = self._pieces.popleft()
            if len(first) > left:
                self._pieces.appendleft(first[left:])
                first = first[:left]
            pieces.append(first)
            left -= len(first)
        self.size -= most - left
        return pieces[0].tobytes() if len(pieces) == 1 else b"".join(pieces)

    def clear(self) -> None:
        self._pieces.clear()
        self.size = 0


class Http2Stream:
    # The frames of HTTP/2 say where a body ends.
    uses_chunks: ClassVar[bool] = False
    upgrade_status: ClassVar[int] = 200
    # Requests of HTTP/2 do not wait for each other.
    has_waiting: ClassVar[bool] = False

    def __init__(self, connection: Http2Connection, stream_id: int, head: RequestHead) -> None:
        self.context = connection.context
        self.stream_id = stream_id
        self.stall = StallClock()
        self._connection = connection
        self._head = head
        self._exchange = Exchange(self, self._method(), head.target, head.headers)
        self._is_started = False
        # The client has sent everything.
        self.is_received = False
        self._outgoing = OutgoingBuffer()
        self._sent = 0
        self._is_writing_paused = False
        # Nothing more is written.
        self._is_closing = False
        # And nothing more is sent.
        self.is_over = False
        self._is_lost = False
        # The owner after the stream was handed over.
        self._stream: OpenStream | None = None
        # Input for an upgraded protocol that does not read now, and the part of the windows that it takes.
        self._is_reading_paused = False
        self._held_input = bytearray()
        self._held_size = 0

    def _method(self) -> bytes:
        """A CONNECT that opens a WebSocket is otherwise a GET; there is no other route for it."""
        head = self._head
        if head.protocol != WEBSOCKET:
            return head.method
        route = self.context.routes.find(b"GET", head.target).route
        return b"GET" if route is not None and route.websocket else head.method

    # Input

    def start(self) -> None:
        """Start the request: at once, unless the client leaves too many replies unread."""
        exchange, head = self._exchange, self._head
        if exchange.answered:
            return  # refused while it waited
        if not head.is_sound:
            exchange.refuse_later(invalid("the request is not valid HTTP"), 400)
        elif len(head.target) > self.context.limits.target_bytes:
            exchange.refuse_later(target_too_long(), 414)
        elif head.protocol not in (b"", WEBSOCKET):
            exchange.refuse_later(invalid("the only protocol that can be spoken instead is websocket"), 501)
        self._is_started = True
        dispatch(self.context, exchange)
        if head.size > _UNCOUNTED_BYTES and not exchange.answered:
            self._take_room()
        if self.is_received or head.protocol:
            self._finish_body()

    def receive(self, piece: bytes) -> None:
        if isinstance(self._stream, Upgraded):
            self._stream.receive(piece)
            return
        exchange = self._exchange
        exchange.receive(piece)
        if exchange.answered:
            # The body is read and forgotten, so that the client gets to read the reply; but not for ever.
            if exchange.received > self.context.limits.discard_bytes and self.is_over:
                self._connection.reset(self, ErrorCodes.NO_ERROR)
        elif exchange.received > _UNCOUNTED_BYTES and not exchange.complete:
            self._take_room()

    def _take_room(self) -> None:
        exchange, context = self._exchange, self.context
        try:
            if exchange.received > context.max_body_bytes:
                raise too_large(context.max_body_bytes)
            exchange.take_room(context.request_room, exchange.received + self._head.size)
        except ApiError as error:
            exchange.drop_body()
            exchange.fail(error)

    def receive_end(self) -> None:
        """The client has sent everything."""
        self.is_received = True
        if isinstance(self._stream, Upgraded):
            if not self._held_input:
                self.close()
        elif self._is_started and not self._exchange.answered:
            self._finish_body()
        elif self.is_over:
            self._connection.forget(self)

    def _finish_body(self) -> None:
        exchange = self._exchange
        exchange.finish_body()
        if not exchange.answered:
            handle(self.context, exchange)

    def connection_lost(self) -> None:
        self._is_lost = True
        self.context.forget(self)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.connection_lost(self.context.close_callbacks)
        if self._is_started:
            self._exchange.client_gone()

    # Input of an upgraded protocol that does not read

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._is_reading_paused = True

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self.is_closing():
            self._is_reading_paused = False
            self._receive_held()

    @property
    def holds_input(self) -> bool:
        is_upgraded = isinstance(self._stream, Upgraded)
        return is_upgraded and (self._is_reading_paused or bool(self._held_input))

    def hold(self, piece: bytes, size: int) -> None:
        self._held_input += piece
        self._held_size += size

    def _receive_held(self) -> None:
        """Pass on what was held, until the protocol stops reading again."""
        while self._held_input and isinstance(self._stream, Upgraded) and not self._is_reading_paused:
            piece = bytes(self._held_input[:_PIECE_BYTES])
            del self._held_input[:_PIECE_BYTES]
            self._stream.receive(piece)
        if not self._held_input:
            self.release_input()
            if self.is_received:
                self.close()
        self._connection.flush()

    def release_input(self) -> None:
        """Give back the part of the windows that the held input took."""
        size, self._held_size = self._held_size, 0
        self._connection.acknowledge(self.stream_id, size)

    # For the connection

    @property
    def is_stream(self) -> bool:
        """Its owner looks after it: it has no timeouts here."""
        return self._stream is not None or self._is_lost

    @property
    def busy(self) -> bool:
        return not (self._exchange.answered and self.is_stream)

    def progress(self) -> tuple[int, int]:
        if self._outgoing.size:
            return WRITE, self._sent // self.context.limits.write_step_bytes
        if not self.is_received:
            return BODY, self._exchange.received // self.context.limits.body_step_bytes
        return WORKING, 0

    def give_up(self) -> None:
        """The client leaves the request unfinished, or its reply unread."""
        self._reset(ErrorCodes.CANCEL)

    def wind_down(self) -> None:
        """Its connection tells the client."""

    def send_frame(self) -> int:
        """Send one frame, as far as the windows allow. Return its size; -1 if nothing can be sent now."""
        h2 = self._connection.h2
        if self.is_over:
            return -1
        room = min(h2.local_flow_control_window(self.stream_id), h2.max_outbound_frame_size)
        data = self._take_outgoing(room) if room > 0 else b""
        is_end = self._is_closing and not self._outgoing.size
        if not data and not is_end:
            return -1
        h2.send_data(self.stream_id, data, end_stream=is_end)
        if is_end:
            self.end()
            self._connection.sent(self)
        return len(data)

    def _take_outgoing(self, most: int) -> bytes:
        data = self._outgoing.take(most)
        self._sent += len(data)
        self._connection.count_unsent(-len(data))
        if self._is_writing_paused and self._outgoing.size <= self.context.limits.write_low_bytes:
            self._is_writing_paused = False
            if self._stream is not None:
                self._stream.resume_writing()
        return data

    def ends_unread(self) -> bool:
        """The client waits for a word before it sends the body, or its body is too large to be read."""
        exchange = self._exchange
        if self._head.protocol:
            return True
        return b"expect" in exchange.headers or exchange.received > self.context.limits.discard_bytes

    def end(self) -> None:
        """Whatever still waits is not sent any more."""
        self._is_closing = self.is_over = True
        self._connection.count_unsent(-self._outgoing.size)
        self._outgoing.clear()

    def _reset(self, code: ErrorCodes) -> None:
        """End it at once, and tell the client."""
        if not self.is_over:
            self.end()
            self._connection.reset(self, code)

    # Replies

    def send(
        self, exchange: Exchange, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        if self.is_closing():
            return
        length = None if status == 204 else len(body)
        self._send_headers(
            self.context.heads.fields(status, content_type, exchange.with_own(headers), length)
        )
        if exchange.method_bytes != b"HEAD":
            self.write(body)
        self.close()

    def send_continue(self, exchange: Exchange) -> None:
        if not (self.is_received or self._head.protocol):
            self._send_headers([(b":status", b"100")])

    def start_next(self) -> None:
        """Requests of HTTP/2 do not wait for each other."""

    def hand_over(self, stream: OpenStream, *, is_upgrade: bool, is_endless: bool) -> bool:
        if self._is_lost or self.is_closing():
            self._is_lost = True
            return False
        self._stream = stream
        self.context.move_to_streams(self)
        self.resume_reading()
        return True

    def begin_stream(self, content_type: bytes, headers: HeaderList | None, *, chunked: bool) -> None:
        self._send_headers(self.context.heads.fields(200, content_type, headers, None))
        self._connection.flush()

    def begin_upgrade(self, headers: HeaderList) -> None:
        lowered = [(name.lower(), value) for name, value in headers]
        self._send_headers([(b":status", b"%d" % self.upgrade_status), *lowered])
        self._connection.flush()

    def _send_headers(self, fields: HeaderList) -> None:
        try:
            self._connection.h2.send_headers(self.stream_id, fields)
        except ProtocolError:
            # The client has reset the stream in this very moment.
            self.abort()

    def output(self) -> StreamOutput:
        return self

    def get_extra_info(self, name: str) -> Any:
        return self._connection.get_extra_info(name)

    # Output of a stream

    def write(self, data: bytes) -> None:
        if self.is_closing() or not data:
            return
        self._outgoing.append(data)
        self._connection.count_unsent(len(data))
        self._connection.show_ready(self)
        if self._outgoing.size > self.context.limits.write_high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            if self._stream is not None:
                self._stream.pause_writing()

    def is_closing(self) -> bool:
        return self._is_closing or self._connection.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._outgoing.size

    def close(self) -> None:
        if not self.is_closing():
            self._is_closing = True
            self._connection.show_ready(self)

    def abort(self) -> None:
        self._reset(ErrorCodes.INTERNAL_ERROR)

"""A connection that speaks HTTP/1.1.

    input ─▶ known head, or the parser ─▶ `replies`, in the order of the requests ─▶ dispatch ─▶ a handler
    reply ─▶ written when all earlier requests are answered ─▶ the next request starts

What a client sends ahead waits here; beyond a bound the socket is not read any more.
"""

import asyncio
from collections import deque
from itertools import islice
from time import perf_counter
from typing import Any, ClassVar

from topics.core import ApiError
from topics.http.admission.admit import too_large
from topics.http.context import (
    BODY,
    HEAD,
    IDLE,
    LINGERING,
    TURN_S,
    WORKING,
    WRITE,
    StallClock,
    WireContext,
)
from topics.http.dispatch import dispatch, handle
from topics.http.exchange import Exchange
from topics.http.known_heads import END, KEY_HEADER, MOST_HEAD_BYTES
from topics.http.reading import LEAST_BYTES, BodyReceiver, ReadControl
from topics.http.request_parser import RequestParser, target_too_long
from topics.http.response_heads import CONTINUE, JSON, LENGTHS, STATUS_LINES, HeaderList
from topics.http.stream import OpenStream, StreamOutput, Upgraded
from topics.http.tls import PREFACE, speak_http2

# What becomes of the bytes that arrive:
HTTP = 0  # they are requests
NO_MORE_INPUT = 1  # ignored, but replies are still due
LINGER = 2  # ignored, so that the client gets to read the last reply
STREAM = 3  # ignored, while a stream is open
UPGRADED = 4  # given to the protocol that has taken over
CLOSED = 5

_SHORT_BYTES = len(LENGTHS)
# Above this, a second system call costs less than copying the body behind its head.
_COPY_BYTES = 64 * 1024
# A client whose heads differ each time fills the known heads with useless ones.
_MANY_UNKNOWN_HEADS = 64


class Connection(asyncio.Protocol):
    __slots__ = (
        "_input",
        "_input_at",
        "_is_processing",
        "_parser",
        "_read_control",
        "_reading",
        "_requests",
        "_started",
        "_stream",
        "_transport",
        "_unknown_head",
        "_unknown_heads",
        "_write_paused",
        "context",
        "has_waiting",
        "mode",
        "replies",
        "stall",
    )

    uses_chunks: ClassVar[bool] = True
    upgrade_status: ClassVar[int] = 101

    _transport: asyncio.Transport
    _read_control: ReadControl

    def __init__(self, context: WireContext) -> None:
        self.context = context
        self.mode = HTTP
        self.stall = StallClock()
        self._parser: RequestParser | None = RequestParser(context.limits)
        # Requests without a reply, and replies that wait for earlier ones, in the order of the requests.
        self.replies: deque[Exchange] = deque()
        # The first so many of them have been started.
        self._started = 0
        # The request whose body is arriving: the last one.
        self._reading: Exchange | None = None
        # The input that is not parsed yet, and where that begins.
        self._input = b""
        self._input_at = 0
        self._is_processing = False
        # A reply may let requests start, or input be parsed.
        self.has_waiting = False
        self._write_paused = False
        self._requests = 0
        # How many heads in a row had not been seen before, and the last one if its request is not complete.
        self._unknown_heads = 0
        self._unknown_head = b""
        # What the connection was handed over to.
        self._stream: OpenStream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._read_control = ReadControl(self._transport)
        if not self.context.accept(self, self._transport):
            self.mode = CLOSED

    def connection_lost(self, error: Exception | None) -> None:
        self.mode = CLOSED
        unanswered = self._forget_requests()
        self._close_parser()
        self.context.forget(self)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.connection_lost(self.context.close_callbacks)
        for exchange in unanswered:
            exchange.client_gone()

    def eof_received(self) -> bool:
        """A client that ends its side has usually gone; it may still listen for what it asked before."""
        if self._stream is not None:
            self._limit_last_write()
        replies = self.replies
        if self.mode > NO_MORE_INPUT or not replies or replies[0].parked:
            return False
        last = replies[-1]
        # Input that was not HTTP is never complete, and is answered all the same.
        if not (last.complete or last.refusal):
            return False
        last.close_after_reply()
        self._read_control.half_close()
        return True

    def _limit_last_write(self) -> None:
        """The client of a stream has ended its side: what it does not read is not kept for ever."""
        if self._transport.get_write_buffer_size():
            self.context.loop.call_later(self.context.limits.linger_s, self._transport.abort)

    # For the timeouts and the end of the server

    @property
    def busy(self) -> bool:
        return bool(self.replies)

    def progress(self) -> tuple[int, int]:
        """Which timeout applies, and a number that changes while things move."""
        if self._write_paused or self._transport.is_closing():
            return WRITE, self._transport.get_write_buffer_size() // self.context.limits.write_step_bytes
        if self.mode == LINGER:
            return LINGERING, 0
        if self.replies and self.replies[0].complete:
            return WORKING, self._requests
        if self._reading is not None:
            return BODY, self._reading.received // self.context.limits.body_step_bytes
        is_inside = self._parser is not None and self._parser.is_inside
        return (HEAD if is_inside else IDLE), self._requests

    def give_up(self) -> None:
        """The client has taken too long with whatever it is doing."""
        self._transport.abort()

    def wind_down(self) -> None:
        """The server stops. A client of HTTP/1.1 is not told before its next request."""

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self.mode = CLOSED
        self._transport.abort()

    # Input

    def data_received(self, data: bytes) -> None:
        if self.mode:
            self.receive_other(data)
            return
        if self._input:
            data = self._input[self._input_at :] + data
            self._input_at = 0
        self._input = data
        self._process()
        if self._reading is not None and not self._input:
            self._receive_rest(self._reading)

    def receive_other(self, data: bytes) -> None:
        """Take bytes that are not requests."""
        if self.mode == UPGRADED:
            assert isinstance(self._stream, Upgraded)
            self._stream.receive(data)
        elif self.mode == LINGER:
            self._read_control.discard(len(data), self.context.limits.linger_bytes)

    def _process(self) -> None:
        """Take requests from the input and start them, as far as replies and the client's reading allow."""
        if self._is_processing:
            return
        # Replies that are given on the way come back here; without this guard they would nest without end.
        self._is_processing = True
        replies, ends, is_first = self.replies, 0.0, True
        # The head of the last request, if it was parsed and may be remembered, and that request.
        unknown, parsed = b"", None
        try:
            while True:
                started = self._started
                if started < len(replies):
                    if replies[0].kept_reply is not None:
                        self._write_kept_replies()
                        continue
                    exchange = replies[started]
                    may_start = not started or self._may_start_early(exchange)
                    if may_start and self.mode <= NO_MORE_INPUT and not self._write_paused:
                        self._started = started + 1
                        dispatch(self.context, exchange)
                        # Earlier requests may have waited: the head belongs to none of them.
                        if unknown and exchange is parsed:
                            self._remember(exchange, unknown)
                            unknown = b""
                        continue
                elif replies and replies[0].kept_reply is not None:
                    self._write_kept_replies()
                    continue
                if not self._input or self.mode or self._write_paused or (replies and self._is_full()):
                    break
                if ends:
                    if perf_counter() > ends:
                        self._process_in_next_turn()
                        return
                elif not is_first:
                    # Most input has one request, which needs no clock.
                    ends = perf_counter() + TURN_S
                is_first = False
                if not self._take_known():
                    unknown = self._parse()
                    parsed = replies[-1] if unknown and replies else None
        finally:
            self._is_processing = False
        if self.mode:
            self.has_waiting = bool(replies)
        elif self._input or self._write_paused or self._read_control.is_paused or len(replies) > 1:
            self._choose_reading()
        else:
            self.has_waiting = self._started < len(replies)

    def _process_in_next_turn(self) -> None:
        """What one client sends at once is processed for a while; then others have their turn."""
        self.has_waiting = True
        self._read_control.pause()
        self.context.loop.call_soon(self._process)

    def _choose_reading(self) -> None:
        """Read the socket or leave it alone, depending on how much is waiting."""
        replies = self.replies
        if self._input or self._write_paused or (len(replies) > 1 and self._is_full()):
            self.has_waiting = True
            self._read_control.pause()
            return
        self.has_waiting = self._started < len(replies)
        if self._read_control.is_paused:
            self._read_control.resume()

    def _is_full(self) -> bool:
        """No more input is taken before a reply."""
        replies, limits = self.replies, self.context.limits
        if replies[-1].may_upgrade or len(replies) > limits.waiting_requests:
            return True
        return sum([exchange.received for exchange in islice(replies, 1, None)]) >= limits.waiting_bytes

    def _may_start_early(self, exchange: Exchange) -> bool:
        """Whether a request may start before all earlier ones are answered."""
        last, first = self.replies[self._started - 1], self.replies[0]
        if not (last.lets_next_start or last.answered) or not exchange.complete:
            return False
        route, name = exchange.route, exchange.name
        if route is None:
            match = self.context.routes.find(exchange.method_bytes, exchange.target)
            route, name = match.route, match.name
        return route is first.route and name == first.name

    def _take_known(self) -> bool:
        """Take the next request from the input without parsing it. False if it has to be parsed."""
        parser, replies = self._parser, self.replies
        assert parser is not None
        # Behind a request that closes the connection, httptools refuses whatever comes.
        if not parser.is_between or (replies and replies[-1].closes):
            return False
        data, at = self._input, self._input_at
        end = data.find(END, at, at + MOST_HEAD_BYTES + len(END))
        if end < 0:
            return False
        head, known_heads = data[at:end], self.context.known_heads
        known = known_heads.get(head)
        key = b""
        if known is None:
            known, key = known_heads.find_keyed(head)
            if known is None:
                return False
        start = end + len(END)
        stop = start + known.body_bytes
        if stop > len(data):
            return False
        if stop == len(data):
            self._input, self._input_at = b"", 0
        else:
            self._input_at = stop
        self._requests += 1
        self._unknown_heads = 0
        headers = {**known.headers, KEY_HEADER: key} if key else known.headers
        body = data[start:stop]
        replies.append(Exchange(self, known.method, known.target, headers, known=known, body=body))
        return True

    def _parse(self) -> bytes:
        """Parse a part of the input. Return the head of a request that is complete and may be remembered."""
        parser, data, at = self._parser, self._input, self._input_at
        assert parser is not None
        is_beginning = parser.is_between
        stop = parser.feed(data, at)
        if stop == len(data):
            self._input, self._input_at = b"", 0
        else:
            self._input_at = stop
        head = parser.head
        if head is not None:
            self._requests += 1
            self._reading = exchange = Exchange(self, *head)
            if len(head.target) > self.context.limits.target_bytes:
                exchange.refuse_later(target_too_long(), 414)
            self.replies.append(exchange)
            self._unknown_head = data[at:stop] if is_beginning else b""
        if parser.failure is not None:
            self._refuse_input(data[stop:], *parser.failure)
            return b""
        if parser.body and self._reading is not None:
            self._receive_body(self._reading, parser.body)
        if not parser.is_complete:
            return b""
        self._finish_body()
        unknown, self._unknown_head = self._unknown_head, b""
        return unknown

    def _receive_body(self, exchange: Exchange, piece: bytes) -> None:
        exchange.receive(piece)
        context = self.context
        if exchange.received <= context.small_body_bytes or exchange.answered:
            return
        if not self._is_reading_started():
            return
        # Of a chunked body, as it grows; an announced length was judged before.
        try:
            if exchange.received > context.max_body_bytes:
                raise too_large(context.max_body_bytes)
            exchange.take_room(context.request_room, exchange.received)
        except ApiError as error:
            exchange.drop_body()
            exchange.fail(error)

    def _is_reading_started(self) -> bool:
        """Whether the request whose body is arriving, which is the last one, has been started."""
        return self._started == len(self.replies)

    def _finish_body(self) -> None:
        exchange, self._reading = self._reading, None
        if exchange is None:
            return
        exchange.finish_body()
        if exchange.answered:
            # It was refused, and its body is read only now.
            self.replies.popleft()
            self._started -= 1
        elif self._is_reading_started():
            handle(self.context, exchange)

    def _remember(self, exchange: Exchange, data: bytes) -> None:
        """Remember the head of a request. `data` begins with the head and has at most the body after it."""
        # A connection's first request may be its only one.
        if self._requests == 1 or self.mode or self._unknown_heads >= _MANY_UNKNOWN_HEADS:
            return
        # A larger body has to take room, which is asked for with the head.
        if 0 < exchange.received <= self.context.small_body_bytes:
            self._unknown_heads += 1
            self.context.known_heads.remember(exchange, data)

    def _refuse_input(self, rest: bytes, error: ApiError, status: int) -> None:
        """Reply in turn, then close: nobody can tell where the next request would begin."""
        parser = self._parser
        assert parser is not None
        if not self._requests and parser.opening.startswith(PREFACE):
            self._leave_to_http2(parser.opening + rest)
            return
        self.mode = NO_MORE_INPUT
        self._input, self._input_at = b"", 0
        exchange, self._reading = self._reading, None
        if exchange is None:
            exchange = Exchange(self, b"GET", b"", {})
            self.replies.append(exchange)
            exchange.refuse_later(error, status)
        elif not self._is_reading_started():
            exchange.refuse_later(error, status)
        elif exchange.answered:
            self._end(unread=True)
        else:
            exchange.close_after_reply()
            exchange.fail(error, status)

    def _leave_to_http2(self, data: bytes) -> None:
        """All that was read belongs to the other protocol."""
        self.mode = CLOSED
        self._input, self._input_at = b"", 0
        self._close_parser()
        self.context.forget(self)
        speak_http2(self.context, self._transport, data)

    def _close_parser(self) -> None:
        parser, self._parser = self._parser, None
        if parser is not None:
            parser.close()

    # A large body of known length, which a receiver takes from the transport

    def _receive_rest(self, exchange: Exchange) -> None:
        """Let a receiver take the rest of the body, if it is much."""
        # A body in chunks has no known length.
        size = int(exchange.headers.get(b"content-length", b"0"))
        # After a request that is the last one, the parser has to see whatever comes.
        if size - exchange.received < LEAST_BYTES or exchange.answered or exchange.closes:
            return
        if not self._started or len(self.replies) > 1:
            return
        try:
            receiver = BodyReceiver(self, exchange, size)
        except MemoryError:
            return  # there may be enough for what really comes
        self._read_control.hand_to(receiver)

    def take_reading_back(self) -> None:
        """The receiver does not read any more."""
        self._read_control.hand_to(self)

    def pause_for_turn(self) -> None:
        """Read nothing before the next turn of the event loop, in which the receiver is done."""
        self._transport.pause_reading()

    def body_received(self) -> None:
        """All of the body has come."""
        if self._parser is not None:
            self._parser.skip_body()
            self._finish_body()
            self._process()

    # Replies

    def send(
        self, exchange: Exchange, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        replies, transport = self.replies, self._transport
        if exchange is not replies[0]:
            exchange.keep_reply((body, status, content_type, headers))
            if self.has_waiting:
                self._process()
            return
        if exchange.plain and status == 200 and content_type is JSON and headers is None:
            if not transport.is_closing():
                length = len(body)
                if length < _SHORT_BYTES:
                    transport.write(self.context.heads.json_200 + LENGTHS[length] + body)
                else:
                    self._write(self.context.heads.json_200 + b"%d\r\n\r\n" % length, body)
        else:
            if not exchange.complete and not self._may_discard(exchange):
                exchange.close_after_reply()
            if not transport.is_closing():
                self._write(*self._rendered(exchange, body, status, content_type, headers))
            if exchange.closes:
                self._end(unread=not exchange.complete or self.mode == NO_MORE_INPUT)
                return
            if not exchange.complete:
                return  # it is over when its body has come
        replies.popleft()
        self._started -= 1
        if self.has_waiting or (replies and replies[0].kept_reply is not None):
            self._process()

    def _rendered(
        self, exchange: Exchange, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> tuple[bytes, bytes]:
        """Any reply: its head, and the body that follows."""
        connection = b"close" if exchange.closes else b"keep-alive" if exchange.http10 else None
        headers = exchange.with_own(headers)
        head = self.context.heads.before_length(status, content_type, headers, connection)
        if status == 204:
            return head.removesuffix(b"Content-Length: ") + b"\r\n", b""
        head += b"%d\r\n\r\n" % len(body)
        return head, b"" if exchange.method_bytes == b"HEAD" else body

    def _write(self, head: bytes, body: bytes) -> None:
        if len(body) < _COPY_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def _write_kept_replies(self) -> None:
        """Write the replies whose earlier requests are all answered by now."""
        replies = self.replies
        pieces: list[bytes] = []
        last: Exchange | None = None
        while replies and not (last is not None and last.closes):
            kept = replies[0].kept_reply
            if kept is None:
                break
            last = replies.popleft()
            self._started -= 1
            pieces += self._rendered(last, *kept)
        if not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
        if last is not None and last.closes:
            self._end(unread=self.mode == NO_MORE_INPUT)

    def _may_discard(self, exchange: Exchange) -> bool:
        """A small body that nobody wants is read and forgotten; the next request follows it."""
        headers = exchange.headers
        if b"expect" in headers or b"transfer-encoding" in headers:
            return False
        return int(headers.get(b"content-length", b"0")) <= self.context.limits.discard_bytes

    def send_continue(self, exchange: Exchange) -> None:
        if not exchange.http10:
            self._transport.write(CONTINUE)

    def start_next(self) -> None:
        self._process()

    def _end(self, *, unread: bool) -> None:
        """No more replies."""
        unanswered = self._forget_requests()
        if self._transport.is_closing():
            self.mode = CLOSED
        elif unread and not self._read_control.is_half_closed:
            self.mode = LINGER
            self._read_control.linger()
        else:
            self.mode = CLOSED
            self._transport.close()
        for exchange in unanswered:
            exchange.client_gone()

    def _forget_requests(self) -> list[Exchange]:
        """Forget all input and all requests. Return the requests that have been started."""
        started = [*islice(self.replies, self._started)]
        self.replies.clear()
        self._started = 0
        self._reading = None
        self._input, self._input_at = b"", 0
        return started

    # Pressure

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._stream is not None:
            self._stream.pause_writing()
        elif self.mode <= NO_MORE_INPUT:
            self._process()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._stream is not None:
            self._stream.resume_writing()
        elif self.mode <= NO_MORE_INPUT:
            self._process()

    def pause_reading(self) -> None:
        self._read_control.pause()

    def resume_reading(self) -> None:
        self._read_control.resume()

    # Streams and other protocols

    def hand_over(self, stream: OpenStream, *, is_upgrade: bool, is_endless: bool) -> bool:
        rest = self._input[self._input_at :]
        self._forget_requests()
        if is_endless and self._read_control.is_half_closed:
            # Nothing would tell that this client has gone.
            self._transport.close()
        if self.mode > NO_MORE_INPUT or self._transport.is_closing():
            self.mode = CLOSED
            return False
        self.mode = UPGRADED if is_upgrade else STREAM
        self._stream = stream
        # There may be thousands of streams, and none of them parses again.
        self._close_parser()
        self.context.move_to_streams(self)
        # The socket of a stream is always read: that is how its client is found to have gone.
        self._read_control.resume()
        if is_upgrade and rest:
            self.receive_other(rest)
        return True

    def begin_stream(self, content_type: bytes, headers: HeaderList | None, *, chunked: bool) -> None:
        heads = self.context.heads
        self._transport.write(heads.unbounded(content_type, headers, chunked=chunked, connection=b"close"))

    def begin_upgrade(self, headers: HeaderList) -> None:
        lines = [b"%b: %b\r\n" % header for header in headers]
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        self._transport.write(b"".join((STATUS_LINES[self.upgrade_status], upgrade, *lines, b"\r\n")))

    def output(self) -> StreamOutput:
        return self._transport

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

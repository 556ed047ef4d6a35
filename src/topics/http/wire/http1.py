"""HTTP/1.1: from the bytes of a socket to requests that take turns.

What a client sends ahead waits; beyond a bound the socket is not read any more.
"""

import logging
from io import BytesIO
from time import perf_counter

import httptools

from topics.http.door.admission import too_large
from topics.http.wire.body_receiver import receive_rest
from topics.http.wire.channel import CLOSED, DEAF, HTTP, LINGER, RAW, TURN_S
from topics.http.wire.context import BODY, HEAD, IDLE, LINGERING, WORKING, WRITE, WireContext
from topics.http.wire.exchange import Exchange
from topics.http.wire.framing import (
    END_OF_HEAD,
    Chunks,
    begins_well,
    end_of_head,
    has_two_blanks,
    host_of,
    is_chunked,
    is_one_request,
)
from topics.http.wire.protocol_choice import PREFACE, speak_http2
from topics.http.wire.request import ID_HEADER
from topics.http.wire.travelling import Travelling
from topics.values import ApiError, invalid

logger = logging.getLogger("topics.http")

# As much of heads, chunks and trailers as the parser gets before it is asked whether that is too much.
_SLICE_BYTES = 16 * 1024
_MANY_UNKNOWN_HEADS = 64
_BLANK, _CR = 32, 13


class Connection(Travelling):
    __slots__ = (
        "_chunks",
        "_feeding",
        "_half_blank",
        "_head_bytes",
        "_headers",
        "_held_at",
        "_held_back",
        "_host",
        "_latest",
        "_opening",
        "_parser",
        "_reading",
        "_tail",
        "_target",
        "_without_upgrade",
    )

    def __init__(self, context: WireContext) -> None:
        super().__init__(context)
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._target = b""
        # None once a head is complete: header lines that follow then are trailers, which we do not want.
        self._headers: dict[bytes, bytes] | None = {}
        self._head_bytes = 0
        # The part with which a request begins, or those that have its first line.
        self._opening = b""
        # The last bytes of a head that is not complete: its end may be cut in two.
        self._tail = b""
        # The last piece ended with what is perhaps the first half of an empty line.
        self._half_blank = False
        # The host that the last request asked; at first one that none can ask.
        self._host: bytes | None = b"\r\n"
        # The request whose body is arriving, and where that ends if it comes in chunks.
        self._reading: Exchange | None = None
        self._chunks: Chunks | None = None
        # Input not parsed yet because too much is waiting already, and how far it is parsed.
        self._held_back = b""
        self._held_at = 0
        self._feeding = False
        self._without_upgrade: bytes | None = None
        # The request completed by the piece being parsed.
        self._latest: Exchange | None = None

    def connection_lost(self, error: Exception | None) -> None:
        self._parser = None
        super().connection_lost(error)

    def progress(self) -> tuple[int, int]:
        if self._write_paused or self.transport.is_closing():
            return WRITE, self.transport.get_write_buffer_size() // self.context.limits.write_step_bytes
        if self.mode == LINGER:
            return LINGERING, 0
        if self._current is not None and self._current.complete:
            return WORKING, self._requests
        if self._reading is not None:
            return BODY, self._reading.received // self.context.limits.body_step_bytes
        return (HEAD if self._begun else IDLE), self._requests

    # Bytes in

    def parse(self, data: bytes) -> None:
        if not (self._begun or self._behind) and is_one_request(data, _SLICE_BYTES):
            is_first = not self._requests
            self._feed(data)
            latest, self._latest = self._latest, None
            # A connection's first request may be its only one; heads that differ each time are a waste.
            if latest is None or is_first or self.mode or self._unknown_heads >= _MANY_UNKNOWN_HEADS:
                return
            # Not one without a body, nor one that has to take room: that is asked with its head.
            if latest.received and len(data) <= self.context.small_body_bytes:
                self._unknown_heads += 1
                context = self.context
                context.known_requests.remember(latest, data, is_noted=context.request_log.notes_all)
            return
        at, ends = 0, perf_counter() + TURN_S
        while at < len(data) and not (self._behind or self.mode):
            start, at = at, self._part_of(data, at)
            self._feed(data[start:at])
            if perf_counter() > ends:
                break
        self._latest = None
        if at < len(data) and self.mode:
            self.ignore(data[at:])
        elif at < len(data):
            self._held_back = self._held_back[self._held_at :] + data[at:]
            self._held_at = 0
            self._behind = True
            self.advance()
        elif self._reading is not None and self._reading is self._current:
            receive_rest(self, self._reading)

    def body_received(self) -> None:
        """All of it, and past the parser: that has to begin anew."""
        self._parser = httptools.HttpRequestParser(self)
        self._opening = b""
        self.on_message_complete()
        self._latest = None

    def _part_of(self, data: bytes, at: int) -> int:
        """Where the part ends that the parser gets: of one request only, as far as that has come.

        It does not tell where in its input a request began, and each has to be looked at.
        """
        if self._headers is not None:
            if not self._requests and (self._opening + data[at : at + len(PREFACE)]).startswith(PREFACE):
                return len(data)
            return min(end_of_head(data, at, self._tail), at + _SLICE_BYTES)
        reading = self._reading
        if reading is None:
            return len(data)
        if self._chunks is not None:
            return at + self._chunks.end_in(data[at : at + _SLICE_BYTES])
        return min(at + int(reading.headers[b"content-length"]) - reading.received, len(data))

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        reading = self._reading
        received = reading.received if reading is not None else 0
        begun = self._begun
        if not begun:
            self._opening = data
        elif self._headers is not None and b"\r\n" not in self._opening.lstrip(b"\r\n"):
            # Its first line is not complete; there may be empty ones before it.
            self._opening += data
        if not begun and (data[0] <= _BLANK or self._half_blank) and not self._goes_on_well(data):
            self._refuse_input(_not_http(), 400)
            return
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._after_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            logger.exception("a parser callback failed")
            self._refuse_input(ApiError("internal", "internal error"), 500)
        except httptools.HttpParserInvalidMethodError:
            self._unheard_of_method()
        except httptools.HttpParserError:
            self._refuse_input(_not_http(), 400)
        if self._begun and self._headers is not None:
            self._tail = (self._tail + data)[1 - len(END_OF_HEAD) :]
            if not begins_well(self._opening):
                # Its head is not complete, and need not be, if it is of a version that has none.
                self._refuse_input(_not_http(), 400)
        else:
            self._tail = b""
        if self._begun:
            self._check_overhead(reading, received, len(data))
            return
        self._opening = b""
        # A body may end like this as well.
        self._half_blank = data[-1] == _CR and not begun and not data.strip(b"\r\n")

    def _goes_on_well(self, data: bytes) -> bool:
        """Between two requests: there may be empty lines, and one of them may be cut in two."""
        was_half, self._half_blank = self._half_blank, False
        if was_half and data[:1] == b"\n":
            self._opening = data[1:]
        elif was_half:
            return False  # without its other half
        return begins_well(self._opening)

    def _check_overhead(self, reading: Exchange | None, received: int, fed: int) -> None:
        """Bound what is not body: target, headers, the framing of chunks, trailers."""
        if reading is not self._reading or (reading is not None and reading.received != received):
            self._head_bytes = 0
            return
        self._head_bytes += fed
        limits = self.context.limits
        if len(self._target) > limits.target_bytes:
            self._refuse_input(_target_too_long(), 414)
        elif self._head_bytes > limits.head_bytes:
            self._refuse_input(invalid("the headers are too long"), 431)

    def on_message_begin(self) -> None:
        self._begun = True

    def on_url(self, piece: bytes) -> None:
        self._target = self._target + piece if self._target else piece

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        if headers is None:
            return
        name = name.lower()
        if name in headers:
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        parser, headers, target = self._parser, self._headers, self._target
        if self.mode or parser is None or headers is None:
            return
        self._target = b""
        self._headers = None
        self._head_bytes = 0
        if not has_two_blanks(self._opening):
            self._refuse_input(_not_http(), 400)
            return
        self._requests += 1
        exchange = Exchange(self, parser.get_method(), target, headers)
        version = "1.1"
        # Otherwise it is 1.1: with any other version, a connection that goes on has to be asked for.
        if not parser.should_keep_alive() or b"connection" in headers:
            version = parser.get_http_version()
            exchange.closes = not parser.should_keep_alive()
            exchange.http10 = version == "1.0"
            exchange.plain = not (exchange.closes or exchange.http10)
        is_unusual = headers.get(b"host") != self._host or target[:1] != b"/" or version != "1.1"
        if (is_unusual or b"transfer-encoding" in headers) and not self._is_sound(target, headers, version):
            self._refuse_input(_not_http(), 400)
            return
        if ID_HEADER in headers:
            # Its answer has a header of its own.
            exchange.plain = False
        if len(target) > _SLICE_BYTES and len(target) > self.context.limits.target_bytes:
            exchange.refuse_later(_target_too_long(), 414)
        elif b"upgrade" in headers and _has_body(headers) and parser.should_upgrade():
            self._without_upgrade = _rebuild_head(exchange)
            return
        self._reading = exchange
        self._chunks = Chunks() if b"transfer-encoding" in headers else None
        self.take(exchange)

    def _is_sound(self, target: bytes, headers: dict[bytes, bytes], version: str) -> bool:
        """Whether version, host and framing of a request are what they should be."""
        if version != "1.1" and not begins_well(self._opening):
            return False
        if b"transfer-encoding" in headers and (version != "1.1" or not is_chunked(headers)):
            return False
        if version == "1.0" and b"host" not in headers:
            return True
        host = host_of(target, headers)
        if host is None:
            return False
        headers[b"host"] = self._host = host
        return True

    def on_body(self, piece: bytes) -> None:
        exchange = self._reading
        if exchange is None:
            return
        exchange.received += len(piece)
        if exchange.answered:
            return
        if exchange.pieces is not None:
            exchange.pieces.write(piece)
        elif exchange.body:
            exchange.pieces = BytesIO()
            exchange.pieces.write(exchange.body)
            exchange.pieces.write(piece)
        else:
            exchange.body = piece
        if exchange.received > self.context.small_body_bytes and exchange is self._current:
            self._judge_size(exchange)

    def _judge_size(self, exchange: Exchange) -> None:
        """Of a chunked body, as it grows; an announced length was judged before."""
        context = self.context
        try:
            if exchange.received > context.max_body_bytes:
                raise too_large(context.max_body_bytes)
            exchange.take_room(context.request_room, exchange.received)
        except ApiError as error:
            exchange.pieces = None
            exchange.fail(error)

    def on_message_complete(self) -> None:
        self._begun = False
        self._headers = {}
        exchange = self._reading
        if exchange is not None:
            self._reading = None
            self._latest = exchange
            self.completed(exchange)

    # Input that is not what it should be

    def _refuse_input(self, error: ApiError, status: int) -> None:
        """Answer in turn, then close: after this, there is no telling where the next request would begin."""
        if self.mode:
            return
        if not self._requests and self._opening.startswith(PREFACE):
            self._leave_to_http2()
            return
        self.mode = DEAF
        self._held_back = b""
        exchange, self._reading = self._reading, None
        if exchange is None:
            exchange = Exchange(self, b"GET", b"", {})
            self._waiting.append(exchange)
            self._behind = True
        exchange.refuse_later(error, status)
        if exchange is not self._current:
            self.advance()
        elif exchange.answered:
            self.end(unread=True)
        else:
            exchange.fail(error, status)

    def _leave_to_http2(self) -> None:
        """All that was read belongs to the other protocol."""
        early = self._opening + self._held_back[self._held_at :]
        self.mode = CLOSED
        self.forget_input()
        self.context.connections.discard(self)
        speak_http2(self.context, self.transport, early)

    def _unheard_of_method(self) -> None:
        """The parser knows a fixed list of methods; for others, let routing say that they are not allowed."""
        line, newline, rest = self._opening.partition(b"\r\n")
        method, _, after = line.partition(b" ")
        if self.mode or not (method.isalpha() and method.isupper()):
            self._refuse_input(_not_http(), 400)
        elif newline:
            self._parser = httptools.HttpRequestParser(self)
            self._begun = False
            # The parser knows this method and no route has it, so this happens once only.
            self._feed(b"PATCH " + after + newline + rest)
        # Otherwise the line goes on in another piece, at which the parser stumbles again.

    def _after_upgrade(self, rest: bytes) -> None:
        """The parser stops at an upgrade. Taken or not, what follows has to go somewhere."""
        if self._without_upgrade is not None:
            # It also skipped the body, which belongs to a request that we answer without upgrading.
            rest = self._without_upgrade + rest
            self._without_upgrade = None
            self._parser = httptools.HttpRequestParser(self)
        if self.mode == RAW:
            if rest:
                self.ignore(rest)
        elif rest and self.mode == HTTP:
            self._held_back = rest + self._held_back[self._held_at :]
            self._held_at = 0
            self._behind = True
            self.advance()

    # Input that has to wait

    def parse_more(self) -> bool:
        if not self._held_back or self.mode or self._feeding or self._too_much_waiting():
            return False
        data, start = self._held_back, self._held_at
        if self._current is None and not (self._begun or self._waiting):
            # What is parsed behind it is held back again.
            self._held_back, self._held_at = b"", 0
            if self.take_bundle(data, start):
                return True
            self._held_back, self._held_at = data, start
        end = self._held_at = self._part_of(data, start)
        if end == len(data):
            self._held_back = b""
            self._held_at = 0
        self._feeding = True
        try:
            self._feed(data[start:end])
        finally:
            self._feeding = False
        if self.mode == RAW:
            self.ignore(data[end:])
        self._latest = None
        return True

    def choose_reading(self) -> None:
        self._behind = bool(self._waiting or self._held_back)
        if self.mode == HTTP:
            if self._held_back or self._too_much_waiting():
                self.pause_reading()
            else:
                self.resume_reading()

    def _too_much_waiting(self) -> bool:
        waiting, limits = self._waiting, self.context.limits
        if self._write_paused or len(waiting) >= limits.waiting_requests:
            return True
        return bool(waiting) and sum(exchange.received for exchange in waiting) >= limits.waiting_bytes

    def hand_over(self, mode: int) -> bool:
        # There may be thousands of streams, and none of them will parse again.
        self._parser = None
        self._headers = None
        return super().hand_over(mode)

    def forget_input(self) -> None:
        super().forget_input()
        self._reading = self._latest = None
        self._held_back = b""


def _not_http() -> ApiError:
    return invalid("the request is not valid HTTP")


def _target_too_long() -> ApiError:
    return invalid("the request target is too long")


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _rebuild_head(exchange: Exchange) -> bytes:
    """The head again, without asking for an upgrade."""
    lines = [exchange.method_bytes + b" " + exchange.target + b" HTTP/1.1"]
    dropped = (b"upgrade", b"connection", b"http2-settings")
    lines += [name + b": " + value for name, value in exchange.headers.items() if name not in dropped]
    return b"\r\n".join(lines) + b"\r\n\r\n"

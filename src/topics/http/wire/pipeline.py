"""The middle of a connection: requests are taken one after the other, and answered in that order.

Whose head is known need not be parsed (`travelling`); `http1` parses the others.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import TypeAlias

from topics.http.door.admission import admit, too_large
from topics.http.door.callers import Preflight
from topics.http.door.required_headers import require_body_type
from topics.http.wire.answer_heads import CONTINUE, JSON, LENGTHS, HeaderList
from topics.http.wire.bundle import Bundle
from topics.http.wire.channel import DEAF, RAW, STREAM, TURN_S, Channel
from topics.http.wire.context import WireContext
from topics.http.wire.exchange import Exchange
from topics.http.wire.known_requests import KnownRequest
from topics.http.wire.request_body import Gunzip, is_compressed, refuse_unread, shrink
from topics.log import LARGE_BYTES
from topics.values import ApiError

_SHORT_BYTES = len(LENGTHS)
# Asked by byte value: four times faster than by one-byte string.
_QUERY = ord("?")


UnderWay: TypeAlias = Exchange | KnownRequest | Bundle


class Pipeline(Channel):
    __slots__ = ("_advancing", "_begun", "_behind", "_current", "_requests", "_unknown_heads", "_waiting")

    def __init__(self, context: WireContext) -> None:
        super().__init__(context)
        # The request whose turn it is, from its head until its answer; in a convoy, one like it, or several.
        self._current: UnderWay | None = None
        self._waiting: deque[Exchange] = deque()
        # A request is waiting, or input that is not parsed yet.
        self._behind = False
        self._advancing = False
        # The parser is inside a request.
        self._begun = False
        self._requests = 0
        # How many heads in a row had not been seen before.
        self._unknown_heads = 0

    def connection_lost(self, error: Exception | None) -> None:
        current, waiting = self.give_up_current(), list(self._waiting)
        self.forget_input()
        super().connection_lost(error)
        for exchange in (current, *waiting):
            if exchange is not None:
                exchange.client_gone()

    def give_up_current(self) -> Exchange | None:
        """Nobody waits for the answer to the request under way; it, if it has to hear of that."""
        current, self._current = self._current, None
        return current if isinstance(current, Exchange) else None

    def eof_received(self) -> bool:
        """A client that ends its side has usually gone; it may still listen for what it asked before."""
        last = self._waiting[-1] if self._waiting else self._current
        if self.mode in (STREAM, RAW):
            self.let_go()
        if self.mode > DEAF or self._current is None or self._current.parked:
            return False
        # Input that was not HTTP is never complete, and is answered all the same.
        if last is None or not (last.complete or last.refusal):
            return False
        self.close_behind(last)
        self._half_closed = True
        return True

    def close_behind(self, last: UnderWay) -> None:
        """The connection ends with the answer to this request."""
        assert isinstance(last, Exchange)
        last.plain = False
        last.closes = True

    @property
    def busy(self) -> bool:
        return self._current is not None

    def parse_more(self) -> bool:
        """Parse some of the input that was held back; False when there is none, or no room for it."""
        raise NotImplementedError

    def choose_reading(self) -> None:
        """Read the socket or leave it alone, depending on how much is waiting."""
        raise NotImplementedError

    def forget_input(self) -> None:
        """What was sent ahead will not be answered."""
        self._waiting.clear()
        self._behind = False

    def parse(self, data: bytes) -> None:
        """Input that is not a request which is known."""
        raise NotImplementedError

    # Taking requests

    def take(self, exchange: Exchange) -> None:
        """A request whose head is complete."""
        if self._current is None and not self._write_paused and not self._waiting:
            self._current = exchange
            self._admit(exchange)
        else:
            self._waiting.append(exchange)
            self._behind = True

    def completed(self, exchange: Exchange) -> None:
        """Its body is complete too."""
        exchange.complete = True
        if exchange.pieces is not None:
            exchange.body = exchange.pieces.getvalue()
            exchange.pieces = None
        if self._current is exchange:
            if exchange.answered:
                self._current = None
            else:
                self.handle(exchange)

    def advance(self) -> None:
        """Go on with what waits, as far as earlier answers and the client's reading allow."""
        if self._advancing:
            return
        # Answers given on the way call back here; without this guard they would nest without end.
        self._advancing = True
        ends = perf_counter() + TURN_S
        try:
            while True:
                if self._waiting and self._current is None and not self._write_paused:
                    self._current = exchange = self._waiting.popleft()
                    self._admit(exchange)
                    if exchange.complete and not exchange.answered:
                        self.handle(exchange)
                elif not self.parse_more():
                    break
                if perf_counter() > ends and not self.mode:
                    self.pause_reading()
                    asyncio.get_running_loop().call_soon(self.reconsider)
                    return
        finally:
            self._advancing = False
        self.choose_reading()

    def reconsider(self) -> None:
        if self._behind:
            self.advance()
        else:
            self.choose_reading()

    def _admit(self, exchange: Exchange) -> None:
        try:
            if exchange.refusal is not None:
                exchange.fail(*exchange.refusal)
                return
            admit(self.context, exchange)
            if exchange.received > self.context.max_body_bytes:
                raise too_large(self.context.max_body_bytes)
            if b"expect" in exchange.headers and not exchange.complete and not exchange.http10:
                self.transport.write(CONTINUE)
        except Preflight as asked:
            exchange.reply_unrouted(204, asked.headers)
        except Exception as error:
            exchange.fail_with(error)

    def handle(self, exchange: Exchange) -> None:
        route = exchange.route
        assert route is not None
        if self.context.readiness.recovering and not route.always_open:
            self._hold(exchange)
            return
        exchange.started = perf_counter()
        try:
            if _QUERY in exchange.target:
                exchange.note_query()
            if route.takes_body:
                headers = exchange.headers
                if (
                    headers.get(b"content-type") != JSON
                    or not exchange.body
                    or b"content-encoding" in headers
                ):
                    if exchange.body and is_compressed(exchange):
                        exchange.run(self._handle_compressed(exchange))
                        return
                    require_body_type(route, exchange)
            elif exchange.body and len(exchange.body) <= LARGE_BYTES:
                refuse_unread(exchange)
            if len(exchange.body) > LARGE_BYTES and not route.takes_large:
                exchange.run(self._handle_large(exchange))
            elif route.is_async:
                exchange.run(route.handler(exchange))  # type: ignore[arg-type]
            else:
                route.handler(exchange)
        except Exception as error:
            exchange.fail_with(error)
        route.holds.note(perf_counter() - exchange.started)

    def _hold(self, exchange: Exchange) -> None:
        try:
            self.context.readiness.hold(exchange, self.handle)
        except ApiError as refusal:
            exchange.fail(refusal)

    async def _handle_large(self, exchange: Exchange) -> None:
        route = exchange.route
        assert route is not None
        await shrink(exchange)
        if exchange.closed:
            return
        if route.is_async:
            await route.handler(exchange)  # type: ignore[misc]
        else:
            route.handler(exchange)

    async def _handle_compressed(self, exchange: Exchange) -> None:
        route = exchange.route
        assert route is not None
        decoder = Gunzip(exchange.body, self.context.max_body_bytes)
        failure: ApiError | None = None
        try:
            if not decoder.step():
                await self.context.loop.run_in_executor(None, decoder.finish)
        except ApiError as error:
            failure = error
        # Too large comes before a wrong type, a wrong type before bad content.
        if failure is not None and failure.code == "payload_too_large":
            raise failure
        require_body_type(route, exchange)
        if failure is not None:
            raise failure
        exchange.body = decoder.result()
        if exchange.closed:
            return
        if len(exchange.body) > self.context.small_body_bytes:
            exchange.take_room(self.context.request_room, exchange.received + len(exchange.body))
        if len(exchange.body) > LARGE_BYTES and not route.takes_large:
            await self._handle_large(exchange)
        elif route.is_async:
            await route.handler(exchange)  # type: ignore[misc]
        else:
            route.handler(exchange)

    # Giving answers

    def send(self, body: bytes) -> None:
        """The usual answer to the current request: 200, JSON, and the connection goes on."""
        transport = self.transport
        if not transport.is_closing():
            length = len(body)
            if length < _SHORT_BYTES:
                transport.write(self.context.heads.json_200 + LENGTHS[length] + body)
            else:
                self.write_answer(self.context.heads.json_200, body)
        self._current = None
        if self._behind:
            self.advance()

    def send_special(
        self, exchange: Exchange, status: int, content_type: bytes, body: bytes, headers: HeaderList | None
    ) -> None:
        """Any answer to the current request, which may come before its body has arrived."""
        if not exchange.complete and not self._may_discard(exchange):
            exchange.closes = True
        connection = b"close" if exchange.closes else b"keep-alive" if exchange.http10 else None
        if not self.transport.is_closing():
            headers = exchange.with_own(headers)
            head = self.context.heads.before_length(status, content_type, headers, connection)
            if status == 204:
                self.transport.write(head.removesuffix(b"Content-Length: ") + b"\r\n")
            elif exchange.method_bytes == b"HEAD":
                self.transport.write(head + b"%d\r\n\r\n" % len(body))
            else:
                self.write_answer(head, body)
        if exchange.closes:
            self.end(unread=not exchange.complete or self.mode == DEAF)
        elif exchange.complete:
            self._current = None
            if self._behind:
                self.advance()

    def _may_discard(self, exchange: Exchange) -> bool:
        """A small body that we do not want is read and forgotten; the next request comes behind it."""
        headers = exchange.headers
        if b"expect" in headers or b"transfer-encoding" in headers:
            return False
        return int(headers.get(b"content-length", b"0")) <= self.context.limits.discard_bytes

    def end(self, *, unread: bool) -> None:
        self._current = None
        self.forget_input()
        super().end(unread=unread)

    def hand_over(self, mode: int) -> bool:
        self._current = None
        self.forget_input()
        return super().hand_over(mode)

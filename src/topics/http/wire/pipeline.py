"""The middle of a connection: requests are taken one after the other, and answered in that order.

Those whose head is known are taken here, without parsing; `http1` parses the others.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import TypeAlias

from topics.http.door.admission import admit, too_large
from topics.http.door.callers import Preflight
from topics.http.door.required_headers import require_body_type
from topics.http.wire.answer_heads import CONTINUE, JSON, LENGTHS, HeaderList
from topics.http.wire.bundle import Bundle, bundle_in
from topics.http.wire.channel import DEAF, RAW, STREAM, TURN_S, Channel
from topics.http.wire.context import WireContext
from topics.http.wire.crowd import OUTSIDE
from topics.http.wire.exchange import Exchange
from topics.http.wire.known_requests import END, KEY_HEADER, KnownRequest
from topics.http.wire.request_body import Gunzip, is_compressed, refuse_unread, shrink
from topics.http.wire.routing import Route
from topics.log import LARGE_BYTES
from topics.values import ApiError

_SHORT_BYTES = len(LENGTHS)
# Asked by byte value: four times faster than by one-byte string.
_QUERY = ord("?")


class Pipeline(Channel):
    __slots__ = ("_advancing", "_begun", "_behind", "_current", "_requests", "_unknown_heads", "_waiting")

    def __init__(self, context: WireContext) -> None:
        super().__init__(context)
        # The request whose turn it is, from its head until its answer; in a convoy, one like it.
        self._current: Exchange | KnownRequest | Bundle | None = None
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
        current, waiting = self._current, list(self._waiting)
        # What travels in a convoy is written all the same, and nobody is answered.
        self._current = self.step_out(current) if isinstance(current, KnownRequest) else None
        if isinstance(current, Bundle):
            current.is_gone = True
            current.leave_places()
            self._current = current
        self.forget_input()
        super().connection_lost(error)
        for exchange in (self._current or current, *waiting):
            if isinstance(exchange, Exchange):
                exchange.client_gone()

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
        if isinstance(last, KnownRequest):
            last = self.step_out(last)
        if isinstance(last, Exchange):
            last.plain = False
        last.closes = True
        self._half_closed = True
        return True

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

    def data_received(self, data: bytes) -> None:
        if self.mode:
            self.ignore(data)
            return
        if not (self._behind or self._begun or self._current is not None or self._write_paused):
            end = data.find(END)
            if end > 0:
                head, context = data[:end], self.context
                known = context.known_requests.get(head)
                idempotency_key = b""
                if known is None:
                    known, idempotency_key = context.known_requests.find_keyed(head)
                beyond = -1 if known is None else len(data) - end - 4 - known.body_bytes
                if beyond > 0 and self.take_bundle(data, 0):
                    return
                if known is not None and not beyond:
                    body = data[end + 4 :]
                    if known.convoys is not None and known.key is None and context.readiness.open:
                        # Nothing about it can be refused before its body is looked at.
                        self._travel(known, body, idempotency_key)
                        return
                    if self._take_known(known, body, idempotency_key):
                        return
        self.parse(data)

    def _take_known(self, known: KnownRequest, body: bytes, idempotency_key: bytes) -> bool:
        """False when the request might be refused: that is for the usual way to decide."""
        context, key = self.context, known.key
        if not context.readiness.open:
            return False
        if key is not None:
            most = context.settings.max_inflight_per_key
            if most and key.inflight >= most:
                return False
            key.inflight += 1
        if known.convoys is not None:
            self._travel(known, body, idempotency_key)
            return True
        self._requests += 1
        self._unknown_heads = 0
        exchange = self.step_out(known, idempotency_key)
        exchange.body = body
        if not known.is_json:
            self.handle(exchange)
            return True
        exchange.started = perf_counter()
        try:
            known.route.handler(exchange)
        except Exception as error:
            exchange.fail_with(error)
        held_s, holds = perf_counter() - exchange.started, known.route.holds
        if held_s > holds.longest_s:
            holds.longest_s = held_s
        return True

    # In a convoy

    def _begin_travel(self, request: KnownRequest | Bundle, count: int) -> None:
        self._requests += count
        self._unknown_heads = 0
        self._current = request
        crowd = self.context.crowd
        if crowd is not None and self.descriptor == OUTSIDE and self._requests > 1:
            crowd.admit(self)

    def _travel(self, known: KnownRequest, body: bytes, idempotency_key: bytes) -> None:
        self._begin_travel(known, 1)
        convoys = known.convoys
        assert convoys is not None
        if idempotency_key:
            convoys.join_keyed(known.name, self, body, idempotency_key)
        else:
            convoys.join(known.name, self, body)

    def take_bundle(self, data: bytes, at: int) -> bool:
        """Input goes on there, and nothing is under way: False if it does not begin with a bundle."""
        context = self.context
        found = bundle_in(context.known_requests, data, at) if context.readiness.open else None
        if found is None or not found[0].take_places(context.settings.max_inflight_per_key):
            return False
        bundle, stop = found
        bodies = bundle.bodies
        self._begin_travel(bundle, len(bodies))
        bundle.convoys.join_bundle(bundle.name, self, bodies, bundle.keys)
        if stop < len(data):
            self.parse(data[stop:])
        return True

    def take_apart(self) -> None:
        """The bundle under way was not written: its requests are handled one by one, before all others."""
        bundle = self._current
        assert isinstance(bundle, Bundle)
        if bundle.is_gone:
            return
        bundle.leave_places()
        apart = [self._exchange_like(known, key) for known, key in bundle.each()]
        for exchange, body in zip(apart, bundle.bodies, strict=True):
            exchange.body = body
            exchange.received = len(body)
        if bundle.closes:
            apart[-1].plain = False
            apart[-1].closes = True
        self._current = None
        self._waiting.extendleft(reversed(apart))
        self._behind = True
        self.advance()

    def stepping_out(self, started: float) -> Iterator[Exchange]:
        """The requests of the bundle under way, each of which is answered before the next is asked for."""
        bundle = self._current
        assert isinstance(bundle, Bundle)
        if bundle.is_gone:
            return
        was_advancing, self._advancing = self._advancing, True
        try:
            for known, key in bundle.each():
                exchange = self.step_out(known, key)
                exchange.started = started
                yield exchange
        finally:
            self._advancing = was_advancing
        if bundle.closes:
            self.end(unread=False)
        elif self._behind:
            self.advance()

    def _exchange_like(self, known: KnownRequest, idempotency_key: bytes) -> Exchange:
        headers = known.headers
        if idempotency_key:
            headers = {**headers, KEY_HEADER: idempotency_key}
        exchange = Exchange(self, known.method, known.target, headers)
        exchange.complete = True
        return exchange

    def step_out(self, known: KnownRequest, idempotency_key: bytes = b"") -> Exchange:
        """The request under way, which is like this one, gets an exchange of its own, still without a body.

        It has got its place among those of its key already.
        """
        exchange = self._exchange_like(known, idempotency_key)
        exchange.route = known.route
        exchange.name = known.name
        exchange.params = known.params
        if known.key is not None:
            exchange.key = known.key
            exchange.has_place()
        self._current = exchange
        return exchange

    def leave_convoy(self, started: float, body: bytes = b"", key: bytes | None = None) -> Exchange:
        """The request that travelled with others is to be handled by itself."""
        current = self._current
        assert current is not None
        assert not isinstance(current, Bundle)
        exchange = self.step_out(current) if isinstance(current, KnownRequest) else current
        exchange.started = started
        exchange.body = body
        if key is not None:
            exchange.headers = {**exchange.headers, KEY_HEADER: key}
        return exchange

    def is_noted(self, elapsed_s: float) -> bool:
        """Answered now, the request would be more than counted."""
        return elapsed_s >= self.context.request_log.notable_s

    def reply_uncounted(self, body: bytes) -> bool:
        """The usual answer to the request that travelled with others, and is counted with them. True if sent.

        `reply_together` does the same without this call, where it can.
        """
        current = self._current
        if isinstance(current, Exchange):
            # It has stepped out meanwhile, for its client has gone or ended its side.
            return current.reply_uncounted(body)
        if isinstance(current, Bundle):
            return self._reply_bundled(current, body)
        assert current is not None
        if current.key is not None:
            current.key.inflight -= 1
        self.send(body)
        return True

    def _reply_bundled(self, bundle: Bundle, body: bytes) -> bool:
        if bundle.is_gone:
            return False
        if bundle.add_answer(body):
            self._current = None
            bundle.leave_places()
            if not self.transport.is_closing():
                self.transport.write(bundle.rendered(self.context.heads))
            if bundle.closes:
                self.end(unread=False)
            elif self._behind:
                self.advance()
        return True

    def reply_noted(self, body: bytes, started: float) -> None:
        """The usual answer, of which more than a number is kept."""
        bundle = self._current
        if not isinstance(bundle, Bundle):
            self.leave_convoy(started).reply(body)
        elif bundle.add_answer(body):
            for exchange, answer in zip(self.stepping_out(started), bundle.answers, strict=True):
                exchange.reply(answer)

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


# A request by itself, or the connection of one that travels in a convoy.
Asking: TypeAlias = Exchange | Pipeline


def reply_together(route: Route, asking: list[Asking], bodies: list[bytes], started: float) -> None:
    """The usual answers to requests of one route that took the same time, which are counted as one."""
    elapsed_s = perf_counter() - started
    if asking[0].is_noted(elapsed_s):
        for one, body in zip(asking, bodies, strict=True):
            one.reply_noted(body, started)
        return
    crowd = None if isinstance(asking[0], Exchange) else asking[0].context.crowd
    answered, head, length = 0, b"", -1
    if crowd is not None:
        left = crowd.answer(asking, bodies)
        answered = len(asking) - len(left)
        asking, bodies = [asking[index] for index in left], [bodies[index] for index in left]
    for one, body in zip(asking, bodies, strict=True):
        current = None if isinstance(one, Exchange) else one._current
        if current.__class__ is not KnownRequest or current.key is not None:
            answered += one.reply_uncounted(body)
            continue
        assert not isinstance(one, Exchange)
        one._current = None
        answered += 1
        transport = one.transport
        if not transport.is_closing():
            if len(body) != length:
                length = len(body)
                head = one.context.heads.json_200 + b"%d\r\n\r\n" % length
            transport.write(head + body)
        if one._behind:
            one.advance()
    timings = route.timings[2]
    timings.counts[bisect_left(timings.bounds, elapsed_s)] += answered
    timings.total += elapsed_s * answered

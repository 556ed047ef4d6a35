"""Requests that are known: taken without parsing. Small ones travel in convoys, without an object for each.

To its connection, a request in a convoy is one that it is like; or a bundle, where a client has sent several.
"""

from bisect import bisect_left
from collections.abc import Iterator
from time import perf_counter
from typing import Any, TypeAlias

from topics.http.wire.bundle import Bundle, bundle_in
from topics.http.wire.crowd import OUTSIDE, Crowd
from topics.http.wire.exchange import Exchange
from topics.http.wire.known_requests import END, KEY_HEADER, KnownRequest
from topics.http.wire.pipeline import Pipeline, UnderWay
from topics.http.wire.routing import Route
from topics.http.wire.seq_answers import after_seqs, whole_answers
from topics.log import Share


class Travelling(Pipeline):
    __slots__ = ()

    def give_up_current(self) -> Exchange | None:
        """What travels in a convoy is written all the same, and nobody is answered."""
        current = self._current
        if isinstance(current, KnownRequest):
            return self.step_out(current)
        if isinstance(current, Bundle):
            current.is_gone = True
            current.leave_places()
            return None
        return super().give_up_current()

    def close_behind(self, last: UnderWay) -> None:
        if isinstance(last, Bundle):
            last.closes = True
        else:
            super().close_behind(self.step_out(last) if isinstance(last, KnownRequest) else last)

    def data_received(self, data: bytes) -> None:
        if self.mode:
            self.ignore(data)
            return
        if not (self._behind or self._begun or self._current is not None or self._write_paused):
            head, _, body = data.partition(END)
            context = self.context
            find = context.known_requests.get  # called as a method, it would be looked up in its class first
            known = find(head)
            if known is not None and known.plain_bytes == len(body) and context.readiness.open:
                # Nothing about it can be refused before its body is looked at.
                self._requests += 1
                self._unknown_heads = 0
                self._current = known
                if context.crowd is not None:
                    self._join(context.crowd)
                known.convoys.join(known.name, self, body)  # type: ignore[union-attr]
                return
            if body and self._take(known, data, head, body):
                return
        self.parse(data)

    def _take(self, known: KnownRequest | None, data: bytes, head: bytes, body: bytes) -> bool:
        """False if it has to be parsed."""
        idempotency_key = b""
        if known is None:
            known, idempotency_key = self.context.known_requests.find_keyed(head)
            if known is None:
                return False
        beyond = len(body) - known.body_bytes
        if beyond > 0:
            return self.take_bundle(data, 0)
        return not beyond and self._take_known(known, body, idempotency_key)

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
        if crowd is not None:
            self._join(crowd)

    def _join(self, crowd: Crowd) -> None:
        if self.descriptor == OUTSIDE and self._requests > 1:
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


# A request by itself, or the connection of one that travels in a convoy.
Asking: TypeAlias = Exchange | Travelling


def reply_together(route: Route, asking: list[Asking], bodies: list[bytes], started: float) -> None:
    """The usual answers to requests of one route that took the same time, which are counted as one."""
    elapsed_s = perf_counter() - started
    if _are_noted(asking, bodies, started, elapsed_s):
        return
    crowd = _crowd_of(asking)
    answered = 0
    if crowd is not None:
        left = crowd.answer(asking, bodies)
        answered = len(asking) - len(left)
        asking, bodies = [asking[index] for index in left], [bodies[index] for index in left]
    _count(route, answered + _reply_each(asking, bodies), elapsed_s)


def tell_seqs(
    route: Route, shares: list[Share[Asking]], elapsed_s: float, wal_ms: float, fsync_ms: float
) -> bool:
    """The same for the writers of single records, whose answers are made where they are sent.

    False if nobody is told: each has to be answered.
    """
    first = shares[0][1][0]
    if isinstance(first, Exchange) or first.is_noted(elapsed_s):
        return False
    context = first.context
    if context.crowd is not None:
        answered, asking, bodies = context.crowd.tell(shares, elapsed_s * 1000, wal_ms, fsync_ms)
    else:
        after = after_seqs(1, elapsed_s * 1000, wal_ms, fsync_ms)
        answered, asking, bodies = _tell_each(shares, context.heads.json_200, after)
    if asking:
        answered += _reply_each(asking, bodies)
    _count(route, answered, elapsed_s)
    return True


def _tell_each(
    shares: list[Share[Asking]], head: bytes, after: bytes
) -> tuple[int, list[Asking], list[bytes]]:
    """How many have heard; those who have to be answered in another way, and with what."""
    told = 0
    left: list[Asking] = []
    bodies: list[bytes] = []
    for share in shares:
        writers: list[Any] = share[1]
        told += len(writers)
        answers = whole_answers(head, share[0].opening_json, share[2], len(writers), after)
        for one, answer in zip(writers, answers, strict=True):
            if not one._behind:
                current = one._current
                if current.__class__ is KnownRequest and current.key is None:
                    transport = one.transport
                    if not transport.is_closing():
                        one._current = None
                        transport.write(answer)
                        continue
            left.append(one)
            bodies.append(answer.partition(END)[2])
    return told - len(left), left, bodies


def _crowd_of(asking: list[Asking]) -> Crowd | None:
    return None if isinstance(asking[0], Exchange) else asking[0].context.crowd


def _are_noted(asking: list[Asking], bodies: list[bytes], started: float, elapsed_s: float) -> bool:
    """Whether more than a number is kept of each of them: then they are answered."""
    if not asking[0].is_noted(elapsed_s):
        return False
    for one, body in zip(asking, bodies, strict=True):
        one.reply_noted(body, started)
    return True


def _reply_each(asking: list[Asking], bodies: list[bytes]) -> int:
    """How many of them were answered."""
    answered, head, length = 0, b"", -1
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
    return answered


def _count(route: Route, answered: int, elapsed_s: float) -> None:
    timings = route.timings[2]
    timings.counts[bisect_left(timings.bounds, elapsed_s)] += answered
    timings.total += elapsed_s * answered

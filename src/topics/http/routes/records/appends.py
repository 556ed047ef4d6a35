"""Records that arrive as JSON, and what their writer is told: the answer to an append, for every protocol."""

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter

import msgspec

from topics.flow.convoys import Convoys, Travellers, is_bundle
from topics.flow.large_writes import get_ready
from topics.http.door.keys import WRITE
from topics.http.routes.service import Service
from topics.http.wire.exchange import Exchange
from topics.http.wire.known_requests import KEY_HEADER
from topics.http.wire.routing import Body, Route
from topics.http.wire.seq_answers import after_seqs, before_seqs, single_answers
from topics.http.wire.travelling import Asking, reply_together, tell_seqs
from topics.log import (
    LARGE_BYTES,
    SMALL_BODY_BYTES,
    AppendOp,
    AppendRequest,
    TogetherOp,
    check_append,
    decode_append,
    disables_backpressure,
    key_apart,
    large_request,
)
from topics.values import ApiError, accelerator

_encode = msgspec.json.encode
# Asked by byte value: four times faster than by one-byte string.
_QUERY = ord("?")
# A megabyte of records, as clients gather them, with what stands around them, is taken apart at once: handing
# it to a thread would take twice the processor time.
_AT_ONCE_BYTES = LARGE_BYTES + 64 * 1024


class AppendRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._doors = service.doors
        self._convoys: Convoys[Asking] = Convoys(service.engine, service.doors, self)
        self._route = Route(
            "POST",
            "/v0/topics/:topic",
            self.append,
            scopes=WRITE,
            body=Body.REQUIRED,
            takes_large=True,
            query=("return_seqs",),
            convoys=self._convoys,
        )

    def routes(self) -> list[Route]:
        return [self._route]

    def append(self, exchange: Exchange) -> None:
        if len(exchange.body) > _AT_ONCE_BYTES:
            exchange.run(self._append_large(exchange))
            return
        self._doors.append(exchange, exchange.name, len(exchange.body), self._append, _is_patient)

    def _append(self, exchange: Exchange) -> None:
        key, body = exchange.headers.get(KEY_HEADER), exchange.body
        if len(body) > SMALL_BODY_BYTES or _QUERY in exchange.target:
            self._append_by_itself(exchange)
        elif key is not None:
            self._convoys.join_keyed(exchange.name, exchange, body, key.strip(b" \t"))
        elif (parted := key_apart(body)) is not None:
            self._convoys.join_keyed(exchange.name, exchange, *parted)
        else:
            self._convoys.join(exchange.name, exchange, body)

    def _append_by_itself(self, exchange: Exchange) -> None:
        body = exchange.body
        decoded = decode_append(body, exchange.note)
        self._append_checked(exchange, check_append(decoded, len(body), exchange.headers.get(KEY_HEADER)))

    async def _append_large(self, exchange: Exchange) -> None:
        key_header = exchange.headers.get(KEY_HEADER)
        request, patient = await asyncio.to_thread(large_request, exchange.body, key_header, exchange)
        exchange.body = b""
        await get_ready(self._service.engine, self._doors, exchange.name, request, patient=patient)
        self._append_checked(exchange, request)

    def _append_checked(self, exchange: Exchange, request: AppendRequest) -> None:
        done = partial(_answer, exchange, request.return_seqs)
        service, key = self._service, exchange.key
        service.append(exchange.name, request, key, done, exchange.fail, exchange.misnamed)

    # Those that travel together

    def let_in(self, travellers: Travellers[Asking], started: float) -> Travellers[Asking]:
        """What has an exchange came through the door before; what has none comes to it now."""
        inside: list[int] = []
        if travellers.is_bundle:
            self.take_apart(travellers.writers[0])
            return travellers.chosen(inside)
        for index, (writer, body, key) in enumerate(travellers.each()):
            if isinstance(writer, Exchange):
                inside.append(index)
            else:
                _answering_errors(writer.leave_convoy(started, body, key), self.append)
        return travellers.chosen(inside)

    def take_apart(self, writer: Asking) -> None:
        assert not isinstance(writer, Exchange)
        writer.take_apart()

    def append_alone(self, writer: Asking, body: bytes, key: bytes | None, started: float) -> None:
        _answering_errors(writer.leave_convoy(started, body, key), self._append_by_itself)

    def answer(self, writers: list[Asking], counts: list[int] | None, started: float, op: AppendOp) -> None:
        """They came in the same turn of the loop: what the first one waited, all did, but for a few
        microseconds."""
        reply_together(self._route, writers, answers_of(op, counts, started), started)

    def answer_together(self, op: TogetherOp[Asking]) -> None:
        elapsed_s, fsync_ms = perf_counter() - op.started, op.fsync_ms if op.sync else 0.0
        if tell_seqs(self._route, op.shares, elapsed_s, op.wal_ms, fsync_ms):
            return
        after = after_seqs(1, elapsed_s * 1000, op.wal_ms, fsync_ms)
        asking: list[Asking] = []
        bodies: list[bytes] = []
        for topic, writers, first_seq, count, *_ in op.shares:
            asking += writers
            bodies += single_answers(before_seqs(topic), first_seq, count, after)
        reply_together(self._route, asking, bodies, op.started)

    def fail(self, writers: list[Asking], started: float, error: ApiError) -> None:
        if is_bundle(writers):
            connection = writers[0]
            assert not isinstance(connection, Exchange)
            for exchange in connection.stepping_out(started):
                exchange.fail(error)
            return
        for writer in writers:
            writer.leave_convoy(started).fail(error)

    def note_held(self, held_s: float) -> None:
        # As `note` does, without the call: every turn of the loop comes along here.
        holds = self._route.holds
        if held_s > holds.longest_s:
            holds.longest_s = held_s


def _answering_errors(exchange: Exchange, work: Callable[[Exchange], None]) -> None:
    try:
        work(exchange)
    except Exception as error:
        exchange.fail_with(error)


def _is_patient(exchange: Exchange) -> bool:
    return disables_backpressure(exchange.body)


def _answer(exchange: Exchange, with_seqs: bool, op: AppendOp) -> None:
    """Seqs are listed unless the body or the query says not to."""
    if with_seqs and _QUERY in exchange.target:
        with_seqs = exchange.query_flag("return_seqs", True)
    exchange.reply(append_answer(op, exchange.started, with_seqs=with_seqs), 201 if op.created else 200)


# --- what the writer is told ------------------------------------------------------------------------------


def append_answer(op: AppendOp, started: float, *, with_seqs: bool) -> bytes:
    """`started` is when the writer asked, on the clock of perf_counter."""
    before, after = _around(op, op.count, perf_counter() - started)
    first, last = op.first_seq, op.last_seq
    listed = b""
    if with_seqs:
        listed = b'"seqs":%b,' % _seqs(first, last)
    return b'%b%d,"last_seq":%d,%b"head_seq":%d%b' % (before, first, last, listed, op.head_seq, after)


def _seqs(first: int, last: int) -> bytes:
    if first == last:
        return b"[%d]" % first
    native = accelerator.native
    if native is None:
        return _encode([*range(first, last + 1)])
    return native.seqs(first, last - first + 1)  # type: ignore[no-any-return]


def answers_of(op: AppendOp, counts: list[int] | None, started: float) -> list[bytes]:
    """An answer for each of those who wrote together, as if each had been the only one."""
    elapsed_s = perf_counter() - started
    if counts is not None:
        return _answers_of_several(op, counts, elapsed_s)
    before, after = _around(op, 1, elapsed_s)
    return single_answers(before, op.first_seq, op.count, after)


def _answers_of_several(op: AppendOp, counts: list[int], elapsed_s: float) -> list[bytes]:
    answers, first = [], op.first_seq
    for count in counts:
        before, after = _around(op, count, elapsed_s)
        last = first + count - 1
        answers.append(
            b'%b%d,"last_seq":%d,"seqs":%b,"head_seq":%d%b'
            % (before, first, last, _seqs(first, last), last, after)
        )
        first = last + 1
    return answers


def _around(op: AppendOp, count: int, elapsed_s: float) -> tuple[bytes, bytes]:
    """What the answer says before its seqs, and behind them."""
    topic = op.topic
    assert topic is not None
    fsync_ms = op.fsync_ms if topic.config.durable else 0.0
    return before_seqs(topic), after_seqs(
        count, elapsed_s * 1000, op.wal_ms, fsync_ms, created=op.created, deduped=op.deduped
    )

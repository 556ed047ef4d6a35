"""Records that arrive as JSON, and what their writer is told: the answer to an append, for every protocol."""

import asyncio
from functools import partial
from time import perf_counter

import msgspec

from topics.flow.large_writes import get_ready
from topics.http.door.keys import WRITE
from topics.http.routes.service import Service
from topics.http.wire.exchange import Exchange, reply_together
from topics.http.wire.routing import Body, Route
from topics.log import (
    LARGE_BYTES,
    SMALL_BODY_BYTES,
    AppendOp,
    AppendRequest,
    KeyedLines,
    LoneAppends,
    check_append,
    checked_key,
    decode_append,
    disables_backpressure,
    large_request,
    lone_data,
    lone_record,
)
from topics.values import ApiError, accelerator

_encode = msgspec.json.encode
# Asked by byte value: four times faster than by one-byte string.
_QUERY = ord("?")
_LAST, _SEQS, _HEAD = b',"last_seq":', b',"seqs":[', b'],"head_seq":'


class AppendRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._doors = service.doors
        self._topics = service.engine.by_name
        self._lone = LoneAppends(service.engine, self)

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v0/topics/:topic",
                self.append,
                scopes=WRITE,
                body=Body.REQUIRED,
                takes_large=True,
                query=("return_seqs",),
            )
        ]

    def append(self, exchange: Exchange) -> None:
        if len(exchange.body) > LARGE_BYTES:
            exchange.run(self._append_large(exchange))
            return
        self._doors.append(exchange, exchange.name, len(exchange.body), self._append, _is_patient)

    def _append(self, exchange: Exchange) -> None:
        key_header = exchange.headers.get(b"idempotency-key")
        body = exchange.body
        is_small = len(body) <= SMALL_BODY_BYTES and _QUERY not in exchange.target
        topic = self._topics.get(exchange.name)
        if is_small and topic is not None and key_header is None:
            data = lone_data(body)
            if data is not None:
                self._lone.add(exchange, topic, data)
                return
        decoded = decode_append(body, exchange.note)
        if is_small:
            line = lone_record(decoded)
            if line is not None and topic is not None:
                if key_header is None and type(decoded) is not KeyedLines:
                    self._lone.add(exchange, topic, line)
                else:
                    named = decoded.key if isinstance(decoded, KeyedLines) else None
                    self._lone.add_keyed(exchange, topic, line, checked_key(named, key_header))
                return
        self.append_alone(exchange, check_append(decoded, len(body), key_header))

    async def _append_large(self, exchange: Exchange) -> None:
        key_header = exchange.headers.get(b"idempotency-key")
        request, patient = await asyncio.to_thread(large_request, exchange.body, key_header, exchange)
        exchange.body = b""
        await get_ready(self._service.engine, self._doors, exchange.name, request, patient=patient)
        self.append_alone(exchange, request)

    def append_alone(self, exchange: Exchange, request: AppendRequest) -> None:
        done = partial(_answer, exchange, request.return_seqs)
        service, key = self._service, exchange.key
        service.append(exchange.name, request, key, done, exchange.fail, exchange.misnamed)

    def answer(self, exchanges: list[Exchange], op: AppendOp) -> None:
        """Writers of one record each, which came in the same turn of the loop: what the first one waited, all
        did, but for a few microseconds."""
        elapsed_s = perf_counter() - exchanges[0].started
        reply_together(exchanges, lone_answers(op, elapsed_s), elapsed_s)

    def fail(self, exchanges: list[Exchange], error: ApiError) -> None:
        for exchange in exchanges:
            exchange.fail(error)


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


def lone_answers(op: AppendOp, elapsed_s: float) -> list[bytes]:
    """An answer for each record of the write, as if it had been the only one."""
    before, after = _around(op, 1, elapsed_s)
    answers = []
    for seq in range(op.first_seq, op.first_seq + op.count):
        # Formatted once and joined: a third of what formatting it four times takes.
        number = b"%d" % seq
        answers.append(b"".join((before, number, _LAST, number, _SEQS, number, _HEAD, number, after)))
    return answers


def _around(op: AppendOp, count: int, elapsed_s: float) -> tuple[bytes, bytes]:
    """What the answer says before its seqs, and behind them."""
    topic = op.topic
    assert topic is not None
    before = b'{"topic":"%b","epoch":%d,"first_seq":' % (topic.name_json, topic.id)
    after = (
        b',"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
        % (
            count,
            b"true" if op.created else b"false",
            b"true" if op.deduped else b"false",
            elapsed_s * 1000,
            op.wal_ms,
            op.fsync_ms if topic.config.durable else 0.0,
        )
    )
    return before, after

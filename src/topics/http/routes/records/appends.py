"""Appends that arrive as JSON over HTTP, and the answer to an append for every protocol."""

import asyncio
from time import perf_counter

from topics import codec
from topics.flow.large_appends import LARGE_BYTES, append_large
from topics.http.door.keys import ADMIN, WRITE
from topics.http.routes.service import Service, check_dead_letter
from topics.http.wire.exchange import Exchange
from topics.http.wire.known_heads import KEY_HEADER
from topics.http.wire.routing import Body, Route
from topics.log import Append, AppendOp, Topic
from topics.values import ApiError, Misnamed, TopicConfig

# Comparing a byte value is four times faster than comparing a one-byte string.
_QUERY = ord("?")


class HttpAppend(Append):
    """An append request of HTTP."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        # Not through super(): every append makes one of these.
        self.name = exchange.name
        self.body = exchange.body
        self.write = self.create = None
        key = exchange.headers.get(KEY_HEADER)
        self.key = None if key is None else key.strip(b" \t")
        self.misnamed = exchange.misnamed
        self.exchange = exchange

    def done(self, op: AppendOp, first_seq: int, count: int, with_seqs: bool) -> None:
        exchange = self.exchange
        if with_seqs and _QUERY in exchange.target:
            with_seqs = exchange.query_flag("return_seqs", True)
        created = op.created_by is self
        answer = append_answer(
            op.topic, first_seq, count, exchange.started, op, with_seqs=with_seqs, created=created
        )
        exchange.reply(answer, 201 if created else 200)

    def repeated(self, topic: Topic, first_seq: int, count: int, with_seqs: bool) -> None:
        exchange = self.exchange
        if with_seqs and _QUERY in exchange.target:
            with_seqs = exchange.query_flag("return_seqs", True)
        exchange.reply(append_answer(topic, first_seq, count, exchange.started, None, with_seqs=with_seqs))

    def fail(self, error: ApiError) -> None:
        self.exchange.fail(error)

    def note(self, misnamed: Misnamed) -> None:
        self.exchange.note(misnamed)
        self.misnamed = self.exchange.misnamed

    def check_config(self, config: TopicConfig) -> None:
        check_dead_letter(self.exchange.key, config)

    @property
    def may_configure(self) -> bool:
        key = self.exchange.key
        return key is None or key.can(ADMIN)


class AppendRoutes:
    def __init__(self, service: Service) -> None:
        self._engine = service.engine
        self._admission = service.admission

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
        size = len(exchange.body)
        if size > LARGE_BYTES:
            exchange.run(self._append_large(exchange))
        else:
            self._admission.enter(exchange, exchange.name, size, self._enqueue, _is_patient)

    def _enqueue(self, exchange: Exchange) -> None:
        self._engine.append(HttpAppend(exchange))
        exchange.let_next_start()

    async def _append_large(self, exchange: Exchange) -> None:
        request = HttpAppend(exchange)
        write = await asyncio.to_thread(_decode, request)
        await append_large(self._engine, self._admission, request, [write], is_patient=write.patient)


def _decode(request: Append) -> codec.Write:
    write = codec.decode([request.body])[0]
    return request.explain() if write is None else write


def _is_patient(exchange: Exchange) -> bool:
    write = codec.decode([exchange.body])[0]
    return write is not None and write.patient


def append_answer(
    topic: Topic,
    first_seq: int,
    count: int,
    started: float,
    op: AppendOp | None,
    *,
    with_seqs: bool,
    created: bool = False,
) -> bytes:
    """The answer to an append, committed by `op`; None if the append repeats an earlier one.

    `started` is when the request arrived, on the clock of perf_counter.
    """
    last_seq = first_seq + count - 1
    seqs = b""
    if with_seqs:
        seqs = b'"seqs":[%d],' % first_seq if count == 1 else b'"seqs":%b,' % codec.seqs(first_seq, count)
    return (
        b'%b"first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
        % (
            topic.opening_json,
            first_seq,
            last_seq,
            seqs,
            last_seq,
            count,
            b"true" if created else b"false",
            b"true" if op is None else b"false",
            (perf_counter() - started) * 1000,
            0.0 if op is None else op.wal_ms,
            op.fsync_ms if op is not None and topic.config.durable else 0.0,
        )
    )

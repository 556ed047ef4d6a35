"""Appends that arrive as JSON, and the answer to an append for every protocol."""

import asyncio
from functools import partial
from time import perf_counter

from topics import codec
from topics.core import ApiError, TopicConfig, UnknownFields
from topics.flow.large_appends import LARGE_BYTES, append_large
from topics.http.admission.auth import ADMIN, WRITE
from topics.http.exchange import Exchange
from topics.http.known_heads import KEY_HEADER
from topics.http.routes.service import Service, check_dead_letter, routes
from topics.http.routing import Body
from topics.log import Append, AppendOp, Topic

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
        self.unknown_fields = exchange.unknown_fields
        self.exchange = exchange

    def committed(
        self, topic: Topic, first_seq: int, count: int, with_seqs: bool, op: AppendOp | None
    ) -> None:
        exchange = self.exchange
        if with_seqs and _QUERY in exchange.target:
            with_seqs = exchange.query_flag("return_seqs", True)
        created = op is not None and op.created_by is self
        answer = append_answer(
            topic, first_seq, count, exchange.started, op, with_seqs=with_seqs, created=created
        )
        exchange.reply(answer, 201 if created else 200)

    def fail(self, error: ApiError) -> None:
        self.exchange.fail(error)

    def note(self, unknown_fields: UnknownFields) -> None:
        self.exchange.note(unknown_fields)
        self.unknown_fields = self.exchange.unknown_fields

    def check_config(self, config: TopicConfig) -> None:
        check_dead_letter(self.exchange.key, config)

    @property
    def may_configure(self) -> bool:
        key = self.exchange.key
        return key is None or key.can(ADMIN)


@routes.add(
    "POST",
    "/v0/topics/:topic",
    scopes=WRITE,
    body=Body.REQUIRED,
    takes_large=True,
    query=("return_seqs",),
    enter=lambda service: partial(service.admission.enter, is_patient=_is_patient),
)
def append(service: Service, exchange: Exchange) -> None:
    if len(exchange.body) > LARGE_BYTES:
        exchange.run(_append_large(service, exchange))
    else:
        service.engine.append(HttpAppend(exchange))
        exchange.let_next_start()


async def _append_large(service: Service, exchange: Exchange) -> None:
    request = HttpAppend(exchange)
    write = await asyncio.to_thread(_decode, request)
    await append_large(service.engine, service.admission, request, [write], is_patient=write.patient)


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
    created: bool,
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

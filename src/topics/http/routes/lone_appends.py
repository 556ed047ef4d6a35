"""Records that arrive one by one, from many writers in one turn of the loop, are written together.

A write of one small plain record waits until the journal is about to be written anyway. By then its topic
may have a dozen of them: they get their seqs, their frame and their place in memory as one batch, and each
writer its own answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

from topics.http.wire.exchange import Exchange
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.append import AppendOp
from topics.log.write.batch import AppendRequest, PlainLine, column_request, plain_batch
from topics.values.errors import ApiError

# Larger ones gain nothing from company.
SMALL_BODY_BYTES = 4096
# With no more writers than this, waiting for others gains nothing.
_FEW = 3
# Bounds the frame.
_MOST_TOGETHER = 1024
_LAST, _SEQS, _HEAD = b',"last_seq":', b',"seqs":[', b'],"head_seq":'


class LoneAppends:
    """`alone` writes a record as if nobody else were there."""

    def __init__(self, engine: Engine, alone: Callable[[Exchange, AppendRequest], None]) -> None:
        self._engine = engine
        self._alone = alone
        self._gathered: dict[Topic, tuple[list[Exchange], list[PlainLine]]] = {}
        # How many came together the last time.
        self._company = 0

    def add(self, exchange: Exchange, topic: Topic, line: PlainLine) -> None:
        gathered = self._gathered
        if not gathered:
            self._engine.queue.before_flush(self._submit, expects_more=self._company > _FEW)
        together = gathered.get(topic)
        if together is None:
            together = gathered[topic] = ([], [])
        together[0].append(exchange)
        together[1].append(line)

    def _submit(self) -> None:
        gathered, self._gathered = self._gathered, {}
        self._company = sum(len(lines) for _, lines in gathered.values())
        for topic, (exchanges, lines) in gathered.items():
            for start in range(0, len(lines), _MOST_TOGETHER):
                stop = start + _MOST_TOGETHER
                self._append(topic, exchanges[start:stop], lines[start:stop])

    def _append(self, topic: Topic, exchanges: list[Exchange], lines: list[PlainLine]) -> None:
        batch = plain_batch(lines)
        try:
            self._engine.append_to(topic, batch, partial(_answer, exchanges), partial(_fail, exchanges))
        except ApiError:
            # Perhaps only the last does not fit: each hears for itself.
            for exchange, line in zip(exchanges, lines, strict=True):
                self._append_alone(exchange, line)

    def _append_alone(self, exchange: Exchange, line: PlainLine) -> None:
        try:
            self._alone(exchange, column_request(plain_batch([line]), create=None, idempotency_key=None))
        except ApiError as error:
            exchange.fail(error)


def _answer(exchanges: list[Exchange], op: AppendOp) -> None:
    topic, seq = op.topic, op.first_seq
    assert topic is not None
    # They came in the same turn of the loop: what the first one waited, all did, but for a few microseconds.
    elapsed = perf_counter() - exchanges[0].started
    before = b'{"topic":"%b","first_seq":' % topic.name_json
    after = (
        b',"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":%.3f,'
        b'"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
        % (elapsed * 1000, op.wal_ms, op.fsync_ms if topic.config.durable else 0.0)
    )
    ordinary = exchanges[0].passes_unnoticed(elapsed)
    answered = 0
    for exchange in exchanges:
        # Formatted once and joined: a third of what formatting it four times takes.
        number = b"%d" % seq
        body = b"".join((before, number, _LAST, number, _SEQS, number, _HEAD, number, after))
        if ordinary:
            answered += exchange.reply_uncounted(body)
        else:
            exchange.reply(body)
        seq += 1
    if answered:
        route = exchanges[0].route
        assert route is not None
        route.timings[2].observe(elapsed, answered)


def _fail(exchanges: list[Exchange], error: ApiError) -> None:
    for exchange in exchanges:
        exchange.fail(error)

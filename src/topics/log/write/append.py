"""From a checked batch to a committed one: admit, assign seqs, render, journal; publish on commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.log.remove.retention import enforce_caps, expire
from topics.log.topic import Topic
from topics.log.write.batch import Batch, encode_payload
from topics.log.write.idempotency import IdempotencyMemory, Remembered
from topics.log.write.operation import Op
from topics.log.write.reservation import cover, extend_if_short
from topics.storage.frame import Kind
from topics.values.errors import ApiError, limit_reached, short_of_memory
from topics.values.settings import MAX_SEQ

if TYPE_CHECKING:
    from topics.log.engine import Engine

# Enum members cost a lookup each time; the write path runs often enough to notice.
_APPEND, _ADVANCE = int(Kind.APPEND), int(Kind.ADVANCE)


class AppendOp(Op):
    """One write on its way to disk, and its answer."""

    __slots__ = (
        "count",
        "created",
        "deduped",
        "engine",
        "first_seq",
        "head_seq",
        "key",
        "on_done",
        "on_error",
        "remembered",
        "reserve_to",
        "size",
        "ts",
    )

    def __init__(self, engine: Engine, topic: Topic, batch: Batch, ts: int) -> None:
        # Not through super(): one call less on the path every write takes.
        self.buffers = []
        self.topic = topic
        self.others = ()
        self.sync = False
        self.wal_ms = self.fsync_ms = 0.0
        self.engine = engine
        self.count = batch.count
        self.size = batch.size
        self.ts = ts
        self.first_seq = 0
        self.head_seq = 0
        self.reserve_to = 0
        self.created = False
        self.deduped = False
        self.key: str | None = None
        self.remembered: Remembered | None = None
        self.on_done: Callable[[AppendOp], None] = _ignore
        self.on_error: Callable[[ApiError], None] = _ignore

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def apply(self) -> None:
        self.publish()
        self.announce()

    def publish(self) -> None:
        """The records become visible."""
        topic = self.topic
        assert topic is not None
        if self.reserve_to:
            topic.reserve(self.reserve_to)
        config = topic.config
        if config.ttl_ms:
            expire(topic, self.ts)
        topic.publish(self.count, self.size, self.ts)
        if config.cap_records or config.cap_bytes:
            cap_hi = topic.cap_hi
            enforce_caps(topic)
            if topic.mixed and topic.cap_hi != cap_hi:
                self.engine.note_lines(topic)
        self.head_seq = topic.head

    def announce(self) -> None:
        """Those who wait hear of it: the writer first, then the readers."""
        if self.remembered is not None:
            self._settle()
        self.on_done(self)
        topic = self.topic
        assert topic is not None
        if topic.listeners:
            topic.wake()

    def fail(self, error: ApiError) -> None:
        if self.remembered is not None and self.key is not None and self.topic is not None:
            if self.topic.idempotency is not None:
                self.topic.idempotency.forget(self.key)
            for waiter in self.remembered.waiters:
                waiter.on_error(error)
        self.on_error(error)

    def _settle(self) -> None:
        assert self.remembered is not None
        self.remembered.pending = False
        # Remembered for minutes: keep the answer, not the frames.
        self.buffers = []
        waiters, self.remembered.waiters = self.remembered.waiters, []
        for waiter in waiters:
            waiter.answer_as(self)

    def answer_as(self, original: AppendOp) -> None:
        """Give this retry the answer of the write it repeats."""
        self.first_seq = original.first_seq
        self.count = original.count
        self.head_seq = original.head_seq
        self.deduped = True
        self.created = False
        self.on_done(self)


def _ignore(_: object) -> None:
    return None


def append_batch(
    engine: Engine,
    topic: Topic,
    batch: Batch,
    op: AppendOp,
    *,
    key: str | None = None,
    hops: bytes | None = None,
    submit: Callable[[Op], None] | None = None,
) -> None:
    """Admit the batch and queue it for commit. Raises before anything changed when it is refused.

    `submit` takes the operation instead of the queue, for writes that are committed together.
    """
    now = op.ts
    if key is not None and _answered_from_memory(topic, key, op, now):
        return
    admit(engine, topic, batch.count, batch.size, now)
    if submit is None:
        # The write, and perhaps a reservation with it: nothing may be refused once it has its seqs.
        engine.queue.require_room(2)
    if topic.assigned + batch.count > MAX_SEQ:
        raise ApiError("internal", "this topic has used up its seqs")
    ts = now if now > topic.last_ts else topic.last_ts
    op.ts = ts
    op.first_seq = first_seq = topic.assigned + 1
    count = batch.count
    last_seq = topic.assigned + count
    durability = topic.config.durability
    journal = engine.journal
    # All that takes memory comes before the queue hears of it: a write that is in there is not taken back.
    try:
        rows = batch.render(first_seq, ts)
        if durability == "ephemeral":
            kind, payload, flags = _ADVANCE, b"", 0
        else:
            payload, flags = encode_payload(batch, rows, hops)
            kind = _APPEND
        if last_seq > topic.reserved:
            op.reserve_to = cover(engine, topic, last_seq, op)
        op.buffers += journal.frame(kind, payload, topic.id, first_seq, count, ts, flags)
        topic.assign(batch, rows, ts, journal.position, hops, ephemeral=kind == _ADVANCE)
    except MemoryError:
        # What it asked to reserve is asked for again: the frame that did so goes the way of the write.
        topic.withdraw_reservation()
        raise short_of_memory() from None
    if durability == "fsync":
        op.sync = True
    (submit or engine.queue.submit_checked)(op)
    engine.touched.add(topic)
    engine.counters.frames += count
    if key is not None and topic.config.idempotency_window_ms:
        _remember(topic, key, op, now)
    if topic.reserve_asked - last_seq < topic.reserving >> 2:
        extend_if_short(engine, topic)


def _answered_from_memory(topic: Topic, key: str, op: AppendOp, now: int) -> bool:
    memory: IdempotencyMemory | None = topic.idempotency
    entry = memory.find(key, now) if memory is not None else None
    if entry is None:
        return False
    if entry.pending:
        entry.waiters.append(op)
    else:
        op.answer_as(entry.op)
    return True


def _remember(topic: Topic, key: str, op: AppendOp, now: int) -> None:
    if topic.idempotency is None:
        topic.idempotency = IdempotencyMemory()
    op.key = key
    op.remembered = Remembered(op, now + topic.config.idempotency_window_ms)
    topic.idempotency.remember(key, op.remembered, now)


def admit(engine: Engine, topic: Topic, count: int, size: int, now: int) -> None:
    """Caps count what is assigned and not yet committed too, so that no race can overshoot them."""
    config = topic.config
    if config.ttl_ms:
        expire(topic, now)
    if config.discard == "reject" and (config.cap_records or config.cap_bytes):
        _admit_reject(topic, count, size)
    admit_total(engine, size, now)


def admit_total(engine: Engine, size: int, now: int) -> None:
    limit = engine.settings.max_total_bytes
    if limit and engine.totals.bytes + engine.totals.pending_bytes + size > limit:
        engine.expire_all(now)
        if engine.totals.bytes + engine.totals.pending_bytes + size > limit:
            raise limit_reached("max_total_bytes", limit)


def _admit_reject(topic: Topic, count: int, size: int) -> None:
    config = topic.config
    if (config.cap_records and count > config.cap_records) or (config.cap_bytes and size > config.cap_bytes):
        raise ApiError("record_too_large", "this write alone exceeds the topic's cap and can never fit")
    count += topic.live_count + topic.pending_count
    size += topic.live_bytes + topic.pending_bytes
    if (config.cap_records and count > config.cap_records) or (config.cap_bytes and size > config.cap_bytes):
        raise ApiError(
            "topic_full",
            f'topic "{topic.name}" is full',
            {
                "topic": topic.name,
                "cap_records": config.cap_records,
                "cap_bytes": config.cap_bytes,
                "head_seq": topic.head,
                "earliest_seq": topic.floor,
            },
        )

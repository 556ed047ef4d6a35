"""From a checked batch to a committed one: admit, assign seqs, render, journal; publish on commit."""

from collections.abc import Callable

from topics.log.core import Core
from topics.log.lifecycle import create_topic
from topics.log.remove.retention import enforce_caps, expire
from topics.log.topic import Topic
from topics.log.write.append_request import AppendRequest
from topics.log.write.batch import Batch, encode_payload
from topics.log.write.idempotency import IdempotencyMemory, Remembered
from topics.log.write.operation import Fail, Op
from topics.log.write.reservation import cover, extend_if_short
from topics.storage import Kind
from topics.values import (
    DEFAULT_CONFIG,
    MAX_SEQ,
    ApiError,
    check_config,
    is_topic_name,
    limit_reached,
    require_topic_name,
    short_of_memory,
    topic_not_found,
)

# Enum members cost a lookup each time; the write path runs often enough to notice.
_APPEND, _ADVANCE = int(Kind.APPEND), int(Kind.ADVANCE)


class AppendOp(Op):
    """One write on its way to disk, and its answer."""

    __slots__ = (
        "core",
        "count",
        "created",
        "deduped",
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

    grows = True

    def __init__(self, core: Core, topic: Topic, batch: Batch, ts: int) -> None:
        # Not through super(): one call less on the path every write takes.
        self.buffers = []
        self.topic = topic
        self.others = ()
        self.sync = False
        self.wal_ms = self.fsync_ms = 0.0
        self.core = core
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
                self.core.note_lines(topic)
        self.head_seq = topic.head

    def announce(self) -> None:
        """The writer hears of it, then the readers that wait."""
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

    def withdraw(self) -> None:
        assert self.topic is not None
        self.topic.take_back(self.first_seq - 1, self.count, self.size)
        self.topic.withdraw_reservation()
        self.core.counters.frames -= self.count

    def _settle(self) -> None:
        assert self.remembered is not None
        self.remembered.pending = False
        # Remembered for minutes: keep the answer, not the frames.
        self.buffers = []
        waiters, self.remembered.waiters = self.remembered.waiters, []
        for waiter in waiters:
            waiter.answer_as(self)

    def answer_as(self, original: "AppendOp") -> None:
        """Give this retry the answer of the write it repeats."""
        self.first_seq = original.first_seq
        self.count = original.count
        self.head_seq = original.head_seq
        self.deduped = True
        self.created = False
        self.on_done(self)


def _ignore(_: object) -> None:
    return None


def append(
    core: Core,
    name: str,
    request: AppendRequest,
    done: Callable[[AppendOp], None],
    fail: Fail,
    *,
    may_configure: bool = True,
) -> None:
    """Write a batch, creating the topic when the request allows it."""
    topic = core.by_name.get(name)
    now = core.now()
    refusals: list[ApiError] = []
    created = topic is None
    if topic is None:
        topic = _create_for_append(
            core, name, request, may_configure, lambda: fail(refusals[0]) if refusals else None
        )
    op = AppendOp(core, topic, request.batch, now)
    op.created = created
    op.on_done = done
    op.on_error = fail
    try:
        append_batch(core, topic, request.batch, op, key=request.idempotency_key)
    except ApiError as error:
        if not created:
            raise
        # The new topic stays; the refusal is answered once it is there to be seen.
        refusals.append(error)


def append_to(core: Core, topic: Topic, batch: Batch, done: Callable[[AppendOp], None], fail: Fail) -> None:
    """Write a batch to a topic that was there a moment ago."""
    if core.by_name.get(topic.name) is not topic:
        raise topic_not_found(topic.name)
    op = AppendOp(core, topic, batch, core.now())
    op.on_done = done
    op.on_error = fail
    append_batch(core, topic, batch, op)


def _create_for_append(
    core: Core, name: str, request: AppendRequest, may_configure: bool, done: Callable[[], None]
) -> Topic:
    config = request.config or DEFAULT_CONFIG
    if not request.may_create:
        raise topic_not_found(name)
    if not is_topic_name(name):
        require_topic_name(name)
    check_config(config, name)
    if request.config is not None and not may_configure:
        raise ApiError("forbidden", "creating a topic with a config needs the admin scope")
    return create_topic(core, name, config, done, _ignore)


def append_batch(
    core: Core,
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
    admit(core, topic, batch.count, batch.size, now)
    if submit is None:
        # The write, and perhaps a reservation with it: nothing may be refused once it has its seqs.
        core.queue.require_growth(2)
    if topic.assigned + batch.count > MAX_SEQ:
        raise ApiError("internal", "this topic has used up its seqs")
    ts = now if now > topic.last_ts else topic.last_ts
    op.ts = ts
    op.first_seq = first_seq = topic.assigned + 1
    count = batch.count
    last_seq = topic.assigned + count
    durability = topic.config.durability
    journal = core.journal
    # All that takes memory comes before the queue hears of it: a write that is in there is not taken back.
    try:
        rows = batch.render(first_seq, ts)
        if durability == "ephemeral":
            kind, payload, flags = _ADVANCE, b"", 0
        else:
            payload, flags = encode_payload(batch, rows, hops)
            kind = _APPEND
        if last_seq > topic.reserved:
            op.reserve_to = cover(core, topic, last_seq, op)
        op.buffers += journal.frame(kind, payload, topic.id, first_seq, count, ts, flags)
        topic.assign(batch, rows, ts, journal.position, hops, ephemeral=kind == _ADVANCE)
    except MemoryError:
        # What it asked to reserve is asked for again: the frame that did so goes the way of the write.
        topic.withdraw_reservation()
        raise short_of_memory() from None
    if durability == "fsync":
        op.sync = True
    (submit or core.queue.submit_checked)(op)
    core.touched.add(topic)
    core.counters.frames += count
    if key is not None and topic.config.idempotency_window_ms:
        _remember(topic, key, op, now)
    if topic.reserve_asked - last_seq < topic.reserving >> 2:
        extend_if_short(core, topic)


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


def admit(core: Core, topic: Topic, count: int, size: int, now: int) -> None:
    """Caps count what is assigned and not yet committed too, so that no race can overshoot them."""
    config = topic.config
    if config.ttl_ms:
        expire(topic, now)
    if config.discard == "reject" and (config.cap_records or config.cap_bytes):
        _admit_reject(topic, count, size)
    admit_total(core, size, now)


def admit_total(core: Core, size: int, now: int) -> None:
    limit = core.settings.max_total_bytes
    if limit and core.totals.bytes + core.totals.pending_bytes + size > limit:
        core.expire_all(now)
        if core.totals.bytes + core.totals.pending_bytes + size > limit:
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

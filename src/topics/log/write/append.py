"""From a checked batch to a committed one: admit, assign seqs, render, journal; publish on commit."""

from collections.abc import Callable
from typing import Protocol

from topics.log.core import Core
from topics.log.lifecycle import create_topic
from topics.log.remove.retention import enforce_caps, expire
from topics.log.topic import Topic
from topics.log.write.append_frame import encode_payload
from topics.log.write.append_request import AppendRequest
from topics.log.write.batch import Batch
from topics.log.write.idempotency import KeyedWrite
from topics.log.write.operation import Fail, Op
from topics.log.write.reservation import cover, extend_if_short
from topics.storage import Kind
from topics.storage.journal import Payload
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
_APPEND, _ADVANCE, _KEYED = int(Kind.APPEND), int(Kind.ADVANCE), int(Kind.KEYED)


class Sized(Protocol):
    """As much of a batch as its operation wants to know."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...


class AppendOp(Op):
    """One write on its way to disk, and its answer."""

    __slots__ = (
        "clock_ms",
        "core",
        "count",
        "created",
        "deduped",
        "first_seq",
        "head_seq",
        "keys",
        "on_done",
        "on_error",
        "reserve_to",
        "size",
        "ts",
    )

    grows = True

    def __init__(self, core: Core, topic: Topic, batch: Sized, ts: int) -> None:
        # Not through super(): one call less on the path every write takes.
        self.buffers = []
        self.topic = topic
        self.others = ()
        self.sync = False
        self.writers = 1
        self.wal_ms = self.fsync_ms = 0.0
        self.core = core
        self.count = batch.count
        self.size = batch.size
        # When it was asked for, and the `$ts` of its records: the latter never falls in a topic.
        self.clock_ms = self.ts = ts
        self.first_seq = 0
        self.head_seq = 0
        self.reserve_to = 0
        self.created = False
        self.deduped = False
        self.keys: KeyedWrite | None = None
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
        show(self.core, topic, self.count, self.size, self.ts, self.clock_ms)
        self.head_seq = topic.head

    def announce(self) -> None:
        """The writer hears of it, then the readers that wait."""
        if self.keys is not None:
            self.keys.settle()
        self.on_done(self)
        topic = self.topic
        assert topic is not None
        if topic.listeners:
            topic.wake()

    def fail(self, error: ApiError) -> None:
        if self.keys is not None:
            self.keys.fail(error)
        self.on_error(error)

    def withdraw(self) -> None:
        assert self.topic is not None
        self.topic.take_back(self.first_seq - 1, self.count, self.size)
        self.topic.withdraw_reservation()

    def answer_as(self, first_seq: int, count: int) -> None:
        """This write repeats one that got these seqs, and gets its answer."""
        self.first_seq = first_seq
        self.count = count
        self.head_seq = self.last_seq
        self.deduped = True
        self.created = False
        self.on_done(self)


def _ignore(_: object) -> None:
    return None


def show(core: Core, topic: Topic, count: int, size: int, ts: int, clock_ms: int) -> None:
    """Records that were assigned become visible, and what limits the topic by now has its effect."""
    config = topic.config
    if config.ttl_ms:
        expire(topic, clock_ms)
    topic.publish(count, size, ts)
    if config.cap_records or config.cap_bytes:
        cap_hi = topic.cap_hi
        enforce_caps(topic)
        if topic.mixed and topic.cap_hi != cap_hi:
            core.note_lines(topic)


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
    now = core.now() if request.batch.rendered_ms is None else request.batch.rendered_ms
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
    key = request.idempotency_key
    if key is not None and topic.config.idempotency_window_ms:
        op.keys = core.keys.of(topic).take(key, op, now)
        if op.keys is None:
            return
    try:
        append_batch(core, topic, request.batch, op)
    except ApiError as error:
        if op.keys is not None:
            op.keys.withdraw()
        if not created:
            raise
        # The new topic stays; the refusal is answered once it is there to be seen.
        refusals.append(error)


def append_to(
    core: Core,
    topic: Topic,
    batch: Batch,
    writers: int,
    done: Callable[[AppendOp], None],
    fail: Fail,
    keys: KeyedWrite | None = None,
) -> None:
    """Write a batch, whose records are of so many writers, to a topic that is there."""
    op = AppendOp(core, topic, batch, core.now())
    op.writers = writers
    op.keys = keys
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
    hops: bytes | None = None,
    submit: Callable[[Op], None] | None = None,
) -> None:
    """Admit the batch and queue it for commit. Raises before anything changed when it is refused.

    `submit` takes the operation instead of the queue, for writes that are committed together.
    """
    now = op.ts
    admit(core, topic, batch.count, batch.size, now)
    if submit is None:
        # The write, and perhaps a reservation with it: nothing may be refused once it has its seqs.
        core.queue.require_growth(2)
    if topic.assigned + batch.count > MAX_SEQ:
        raise ApiError("internal", "this topic has used up its seqs")
    # Later than now where the clock was set back: the time of records never falls.
    op.ts = ts = now if now > topic.last_ts else topic.last_ts
    op.first_seq = first_seq = topic.assigned + 1
    count = batch.count
    last_seq = topic.assigned + count
    durability = topic.config.durability
    journal = core.journal
    payload: Payload = b""
    # All that takes memory comes before the queue hears of it: a write that is in there is not taken back.
    try:
        rows = batch.render(first_seq, ts)
        if durability == "ephemeral":
            kind, flags = _ADVANCE, 0
        elif op.keys is None:
            payload, flags = encode_payload(batch, rows, hops)
            kind = _APPEND
        else:
            payload, flags = encode_payload(batch, rows, hops, op.keys.encoded())
            kind = _KEYED
        if last_seq > topic.reserved:
            op.reserve_to = cover(core, topic, last_seq, op)
        op.buffers += journal.frame(kind, payload, topic.id, first_seq, count, ts, flags, ts - now)
        if op.keys is not None:
            op.keys.remember(first_seq, now)
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
    if topic.reserve_asked - last_seq < topic.reserving >> 2:
        extend_if_short(core, topic)


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

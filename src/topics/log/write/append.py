"""The write path of the log: requests in, records with seqs out.

    log.append(request)  ─▶  once a turn: decode all bodies ─▶ per topic: admit, encode, assign
                         ─▶  one journal write  ─▶  publish  ─▶  every request gets its result

`assign` runs once for everything that a turn of the event loop has brought. It works on the requests in the
order of their arrival. A mistake, a limit or a repeated idempotency key is the result of one request and does
not change what happens to its neighbours.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import ClassVar, TypeAlias

from mypy_extensions import mypyc_attr

from topics import codec
from topics.codec import Rows, Write
from topics.core import (
    DEFAULT_CONFIG,
    MAX_SEQ,
    ApiError,
    InvariantViolated,
    TopicConfig,
    UnknownFields,
    check_config,
    is_topic_name,
    limit_reached,
    parse_config,
    require_topic_name,
    short_of_memory,
    topic_not_found,
)
from topics.log.engine import Engine
from topics.log.lifecycle import create_topic
from topics.log.remove.removal import enforce_caps, expire
from topics.log.topic import Topic
from topics.log.write.idempotency import TopicKeys, check_key
from topics.log.write.operation import CallbackOp, Op
from topics.log.write.reservation import cover, extend_if_short
from topics.storage import FrameDraft, Kind, Payload

log = logging.getLogger("topics.commit")

# Enum members cost a lookup on each use, and every append uses these.
_APPEND, _ADVANCE, _KEYED = int(Kind.APPEND), int(Kind.ADVANCE), int(Kind.KEYED)


@mypyc_attr(allow_interpreted_subclasses=True)
class Append:
    """A request to append records to one topic. A subclass answers whoever sent it.

    `committed` or `fail` is called once, and must not raise.
    """

    __slots__ = ("body", "create", "key", "name", "unknown_fields", "write")

    def __init__(
        self,
        name: str,
        body: bytes = b"",
        *,
        write: Write | None = None,
        key: bytes | None = None,
        create: bool | None = None,
        unknown_fields: UnknownFields | None = None,
    ) -> None:
        """`write` holds the records if they are decoded already; `body` is the JSON of the request otherwise.

        `key` and `create` count if the body does not say otherwise: `assign` takes the key of the body for
        `key`. `unknown_fields` lists unknown names that
        the caller found outside the body.
        """
        self.name = name
        self.body = body
        self.write = write
        self.key = key
        self.create = create
        self.unknown_fields = unknown_fields

    def committed(
        self, topic: Topic, first_seq: int, count: int, with_seqs: bool, op: "AppendOp | None"
    ) -> None:
        """Report that the records are committed, the first one as `first_seq`.

        `op` has committed them; None if an earlier request with the same idempotency key has brought them.
        `with_seqs` says whether the request wants its seqs listed.
        """
        raise NotImplementedError

    def fail(self, error: ApiError) -> None:
        """Report that nothing of the request was or will be written."""
        raise NotImplementedError

    def explain(self) -> Write:
        """The records of a body that the codec does not take; raises the first mistake in it.

        Returns them if the mistakes are names that the server ignores.
        """
        return codec.explain(self.body, self.note, key=self.key)

    def note(self, unknown_fields: UnknownFields) -> None:
        """Record unknown or duplicate names in the body; raise if that is refused at once."""
        unknown_fields.refuse()

    def check_config(self, config: TopicConfig) -> None:
        """Raise if the sender may not use this config."""

    @property
    def may_configure(self) -> bool:
        """Whether the sender may create a topic with a config of its own."""
        return True


Pair: TypeAlias = tuple[Append, Write]


@mypyc_attr(allow_interpreted_subclasses=True)
class AppendOp(Op):
    """Records of one topic on their way to the journal, and the requests they came with."""

    __slots__ = (
        "clock_ms",
        "count",
        "created_by",
        "engine",
        "first_seq",
        "keys",
        "refused",
        "requests",
        "reserve_to",
        "size",
        "ts",
        "writes",
    )

    grows: ClassVar[bool] = True

    def __init__(self, engine: Engine, topic: Topic, now: int) -> None:
        # Not through super(): every append makes one of these.
        self.frames = []
        self.others = ()
        self.sync = False
        self.wal_ms = self.fsync_ms = 0.0
        self.engine = engine
        self.topic = topic
        # The time of the request, and the `$ts` of its records, which never falls within a topic.
        self.clock_ms = now
        self.ts = now if now > topic.last_ts else topic.last_ts
        self.first_seq = topic.assigned + 1
        self.count = self.size = 0
        # The end of the seq reservation that this operation waits for; 0 if it needs none.
        self.reserve_to = 0
        self.requests: list[Append] = []
        self.writes: list[Write] = []
        # Requests that earlier requests left no room for: they are told after those are committed.
        self.refused: list[tuple[Append, ApiError]] = []
        # The request that created the topic.
        self.created_by: Append | None = None
        self.keys = topic.keys

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def apply(self) -> None:
        self.publish()
        self.answer()

    def publish(self) -> None:
        """Make the records visible and apply the limits of the topic."""
        topic: Topic = self.topic
        config = topic.config
        if self.reserve_to:
            topic.reserve(self.reserve_to)
        if config.ttl_ms:
            expire(topic, self.clock_ms)
        topic.publish(self.count, self.size, self.ts)
        if config.cap_records or config.cap_bytes:
            cap_hi = topic.cap_hi
            enforce_caps(topic)
            if topic.mixed and topic.cap_hi != cap_hi:
                self.engine.note_lines(topic)

    def answer(self) -> None:
        """Give every request its result, then wake the readers that wait for records."""
        topic: Topic = self.topic
        seq = self.first_seq
        for request, write in zip(self.requests, self.writes, strict=True):
            count = write.count
            request.committed(topic, seq, count, write.return_seqs, self)
            seq += count
        if self.keys is not None and self.keys.waiters:
            self.keys.answer_waiters()
        if self.refused:
            self.refuse()
        if topic.listeners:
            topic.wake()

    def fail(self, error: ApiError) -> None:
        if self.keys is not None:
            self.keys.fail(error)
        for request in self.requests:
            request.fail(error)
        self.refuse()

    def refuse(self, _: object = None) -> None:
        """Tell the requests that found the topic full."""
        for request, error in self.refused:
            request.fail(error)

    def withdraw(self) -> None:
        self.topic.take_back(self.first_seq - 1, self.count, self.size)
        self.topic.withdraw_reservation()


# --- what a turn has brought ------------------------------------------------------------------------------


def assign(engine: Engine, requests: Sequence[Append]) -> None:
    """Decode and admit `requests` in their order, assign seqs, and submit one operation for each topic.

    Raises only as long as no request has been answered or submitted. A later defect ends writing.
    """
    now = engine.now()
    bodies = [request.body for request in requests if request.write is None]
    try:
        decoded = codec.decode(bodies)
    except MemoryError:
        # `explain` needs memory for one body at a time, and reports it if there is none.
        decoded = [None] * len(bodies)
    # Requests of a topic share an operation. A topic that is created in between ends what was gathered, so
    # that topics are created in the order of the requests. Where the whole log may become full, each request
    # is judged after the ones before it have their place.
    is_alone = bool(engine.settings.max_total_bytes) and _may_exceed_total(engine, requests, decoded)
    by_topic: dict[Topic, list[Pair]] = {}
    remaining = iter(decoded)
    for request in requests:
        write = next(remaining) if request.write is None else request.write
        try:
            if write is None:
                write = request.explain()
            if write.key is not None:
                request.key = write.key
            topic = engine.by_name.get(request.name)
            if topic is None or write.config is not None or request.unknown_fields is not None:
                config = _checked_config(engine, request, write)
                if topic is None:
                    _assign_to(engine, by_topic, now)
                    topic, creation = _create(engine, request, write, config)
                    _assign_to(engine, {topic: [(request, write)]}, now, creation)
                    continue
        except Exception as error:
            request.fail(_failure(engine, error))
            continue
        pairs = by_topic.get(topic)
        if pairs is None:
            by_topic[topic] = [(request, write)]
        else:
            pairs.append((request, write))
        if is_alone:
            _assign_to(engine, by_topic, now)
    _assign_to(engine, by_topic, now)


def _failure(engine: Engine, error: Exception, *unfinished: Op) -> ApiError:
    """The answer to a request that met this error. A defect ends writing, and fails `unfinished`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, MemoryError):
        return short_of_memory()
    if not isinstance(error, InvariantViolated):
        log.error("an append request could not be judged", exc_info=error)
    engine.queue.give_up(error, *unfinished)
    return engine.queue.refusals.failure or short_of_memory()


def _may_exceed_total(engine: Engine, requests: Iterable[Append], decoded: Iterable[Write | None]) -> bool:
    limit = engine.settings.max_total_bytes
    writes = chain(decoded, (request.write for request in requests))
    size = sum([write.size for write in writes if write is not None])
    return engine.totals.bytes + engine.totals.pending_bytes + size > limit


def _checked_config(engine: Engine, request: Append, write: Write) -> TopicConfig | None:
    """The config that the request brings; raises what has to be told before the topic is looked at."""
    config = None if write.config is None else _parsed_config(request, write.config)
    if request.key is not None:
        check_key(request.key)
    if request.unknown_fields is not None and (
        _may_create(request, write, config) or request.name in engine.by_name
    ):
        require_topic_name(request.name)
        raise request.unknown_fields.refusal()
    if config is not None:
        request.check_config(config)
    return config


def _parsed_config(request: Append, text: bytes) -> TopicConfig:
    try:
        return parse_config(text)
    except ApiError:
        # The words for a mistake say where in the body it is.
        write = request.explain()
        return parse_config(write.config or b"{}")


def _may_create(request: Append, write: Write, config: TopicConfig | None) -> bool:
    create = request.create if write.create is None else write.create
    return (config or DEFAULT_CONFIG).auto_create if create is None else create


class _Creation:
    """The topic that a request has created. It stays, even if the records are refused.

    A refusal is reported when the creation is committed, so that the sender finds the topic.
    """

    def __init__(self, request: Append) -> None:
        self.request = request
        self._refusal: ApiError | None = None
        # It is committed, or has failed.
        self._is_over = False

    def refuse(self, error: ApiError) -> None:
        if self._is_over:
            self.request.fail(error)
        else:
            self._refusal = error

    def committed(self) -> None:
        self._is_over = True
        if self._refusal is not None:
            self.request.fail(self._refusal)

    def failed(self, error: ApiError) -> None:
        """Report that there is no topic; the operation of the records reports it if they were accepted."""
        self._is_over = True
        if self._refusal is not None:
            self.request.fail(error)


def _create(
    engine: Engine, request: Append, write: Write, config: TopicConfig | None
) -> tuple[Topic, _Creation]:
    """Create the topic of a request if the request allows it."""
    name = request.name
    if not _may_create(request, write, config):
        raise topic_not_found(name)
    if not is_topic_name(name):
        require_topic_name(name)
    check_config(config or DEFAULT_CONFIG, name)
    if config is not None and not request.may_configure:
        raise ApiError("forbidden", "creating a topic with a config needs the admin scope")
    creation = _Creation(request)
    return create_topic(engine, name, config or DEFAULT_CONFIG, creation.committed, creation.failed), creation


# --- one topic --------------------------------------------------------------------------------------------


def _assign_to(
    engine: Engine, by_topic: dict[Topic, list[Pair]], now: int, creation: _Creation | None = None
) -> None:
    """Admit the requests of each topic and submit the operation that commits the accepted ones."""
    for topic, pairs in by_topic.items():
        op = AppendOp(engine, topic, now)
        if creation is not None:
            op.created_by = creation.request
        taken = _admit_all(engine, op, pairs, creation)
        if not op.requests:
            if op.refused:
                # Earlier operations fill the topic, and this one comes after them.
                engine.queue.submit_checked(CallbackOp([], topic, op.refuse, op.refuse, sync=False))
            continue
        try:
            # The operation, and perhaps a reservation with it: nothing is refused once it has its seqs.
            engine.queue.require_growth(2)
            rows = add_records(engine, op, op.writes, taken=taken)
        except (ApiError, MemoryError) as error:
            failure = _failure(engine, error)
            for request in op.requests:
                _refuse(request, failure, creation)
            op.refuse()
            if op.keys is not None:
                op.keys.fail(failure)
            continue
        except Exception as error:
            # Its seqs may be assigned: they are taken back, and the operation answers its requests.
            _failure(engine, error, op)
            continue
        try:
            engine.queue.submit_checked(op, len(rows.text), op.count)
            if topic.reserve_asked - topic.assigned < topic.reserving >> 2:
                extend_if_short(engine, topic)
        except Exception as error:
            # The queue has the operation, which answers its requests.
            _failure(engine, error)
    by_topic.clear()


# Idempotency keys by digest: the first seq and the count of the records that each one stands for.
Taken: TypeAlias = dict[bytes, tuple[int, int]]


@dataclass(slots=True, frozen=True)
class Judgement:
    """Where the records of a request go, and what it brings besides."""

    request: Append
    topic: Topic
    now: int
    # Of its idempotency key, if it has one that counts.
    digest: bytes | None
    creation: _Creation | None

    @property
    def created_by(self) -> Append | None:
        return None if self.creation is None else self.request

    def refuse(self, error: ApiError) -> None:
        _refuse(self.request, error, self.creation)


def judge(engine: Engine, request: Append, write: Write) -> Judgement | None:
    """Find or create the topic of one request that is not gathered with others.

    None if an earlier request with its idempotency key is known: then that one's result is reported.
    """
    now = engine.now()
    topic, creation = engine.by_name.get(request.name), None
    if write.key is not None:
        request.key = write.key
    config = _checked_config(engine, request, write)
    if topic is None:
        topic, creation = _create(engine, request, write, config)
    digest = None
    if request.key is not None:
        keys = engine.keys.of(topic)
        digest = keys.digest(request.key)
        known = None if digest is None else keys.find(digest, now)
        if known is not None:
            _answer_again(keys, topic, request, write, *known)
            return None
    return Judgement(request, topic, now, digest, creation)


def _admit_all(engine: Engine, op: AppendOp, pairs: list[Pair], creation: _Creation | None) -> Taken:
    """Judge requests one after the other; the accepted ones are in `op` afterwards."""
    topic: Topic = op.topic
    now = op.clock_ms
    config = topic.config
    if config.ttl_ms:
        try:
            expire(topic, now)
        except Exception as error:
            # The queue refuses growth from here on, and so all of these requests.
            _failure(engine, error)
    is_bounded = engine.settings.max_total_bytes or (
        config.discard == "reject" and (config.cap_records or config.cap_bytes)
    )
    taken: Taken = {}
    requests, writes, next_seq = op.requests, op.writes, op.first_seq
    for request, write in pairs:
        count, digest, known = write.count, None, None
        try:
            if request.key is not None:
                keys = op.keys = op.keys or engine.keys.of(topic)
                digest = keys.digest(request.key)
                if digest is not None:
                    known = taken.get(digest) or keys.find(digest, now)
            if known is None:
                if is_bounded:
                    admit(engine, topic, count, write.size, now, op)
                if next_seq + count - 1 > MAX_SEQ:
                    raise ApiError("internal", "this topic has used up its seqs")
        except Exception as error:
            failure = _failure(engine, error)
            if (requests or topic.pending_count) and failure.code == "topic_full":
                op.refused.append((request, failure))
            else:
                _refuse(request, failure, creation)
            continue
        if known is not None:
            _answer_again(keys, topic, request, write, *known)
            continue
        if digest is not None:
            taken[digest] = next_seq, count
        requests.append(request)
        writes.append(write)
        next_seq += count
        op.count += count
        op.size += write.size
    return taken


def _answer_again(
    keys: TopicKeys, topic: Topic, request: Append, write: Write, first_seq: int, count: int
) -> None:
    """Give a repeated request the result of the first one, when that is committed."""
    keys.answer(
        first_seq, partial(request.committed, topic, first_seq, count, write.return_seqs, None), request.fail
    )


def _refuse(request: Append, error: ApiError, creation: _Creation | None) -> None:
    if creation is None:
        request.fail(error)
    else:
        creation.refuse(error)


def add_records(
    engine: Engine,
    op: AppendOp,
    writes: list[Write],
    *,
    taken: Taken | None = None,
    hops: bytes | None = None,
    position: int | None = None,
    is_framed: bool = True,
) -> Rows:
    """Encode the records of an operation and add them to its topic; raises before anything has changed.

    `is_framed` is False for copies that a router makes: a frame of the router stands for them, and no frame
    that they can be made from lies below `position`.
    """
    topic: Topic = op.topic
    first_seq, count, ts = op.first_seq, op.count, op.ts
    is_kept = topic.config.durability != "ephemeral"
    last_seq = first_seq + count - 1
    if taken:
        keys = op.keys = op.keys or engine.keys.of(topic)
    try:
        rows = codec.encode(writes, first_seq, ts, hops)
        if is_framed:
            payload: Payload
            kind, payload, flags = _APPEND, rows.payload, rows.flags
            if not is_kept:
                kind, payload, flags = _ADVANCE, b"", 0
            elif taken:
                kind, payload = _KEYED, (keys.encoded(taken, first_seq), payload)
            if last_seq > topic.reserved:
                op.reserve_to = cover(engine, topic, last_seq, op)
            ahead_ms = ts - op.clock_ms
            op.frames.append(FrameDraft(kind, payload, topic.id, first_seq, count, ts, flags, ahead_ms))
        if taken:
            keys.remember(taken, op.clock_ms)
        topic.append(rows, engine.journal.position if position is None else position, is_kept=is_kept)
    except (MemoryError, InvariantViolated):
        # The frame that asked for a reservation is dropped with the operation.
        topic.withdraw_reservation()
        if taken:
            keys.take_back(first_seq - 1)
        raise
    if topic.config.durability == "fsync":
        op.sync = True
    # Its journal file will end with the head of the topic.
    engine.touched.add(topic)
    return rows


# --- limits -----------------------------------------------------------------------------------------------


def admit(
    engine: Engine, topic: Topic, count: int, size: int, now: int, gathered: AppendOp | None = None
) -> None:
    """Raise if the topic or the log has no room for so many more records and bytes.

    Caps count records that are assigned but not yet committed, and those that an operation has gathered, so
    that no race can exceed them.
    """
    config = topic.config
    if config.discard == "reject" and (config.cap_records or config.cap_bytes):
        _admit_reject(topic, count, size, gathered)
    admit_total(engine, size if gathered is None else size + gathered.size, now)


def admit_total(engine: Engine, size: int, now: int) -> None:
    """Raise if the log as a whole has no room for so many more bytes."""
    limit = engine.settings.max_total_bytes
    if limit and engine.totals.bytes + engine.totals.pending_bytes + size > limit:
        engine.expire_all(now)
        if engine.totals.bytes + engine.totals.pending_bytes + size > limit:
            raise limit_reached("max_total_bytes", limit)


def _admit_reject(topic: Topic, count: int, size: int, gathered: AppendOp | None) -> None:
    config = topic.config
    if (config.cap_records and count > config.cap_records) or (config.cap_bytes and size > config.cap_bytes):
        raise ApiError("record_too_large", "this write alone exceeds the topic's cap and can never fit")
    count += topic.live_count + topic.pending_count
    size += topic.live_bytes + topic.pending_bytes
    head = topic.assigned
    if gathered is not None:
        count, size = count + gathered.count, size + gathered.size
        head += gathered.count
    if (config.cap_records and count > config.cap_records) or (config.cap_bytes and size > config.cap_bytes):
        raise ApiError(
            "topic_full",
            f'topic "{topic.name}" is full',
            {
                "topic": topic.name,
                "cap_records": config.cap_records,
                "cap_bytes": config.cap_bytes,
                "head_seq": head,
                "earliest_seq": topic.floor,
            },
        )

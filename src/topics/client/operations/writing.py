"""Encodes records, batches them, and sends them under idempotency keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from topics.client.encoding import Codec, encode_json
from topics.client.errors import TopicNotFound, TopicsError
from topics.client.operations.settings import WantedTopic
from topics.client.records import Ack, Draft
from topics.client.wire.requests import KEY_HEADER, Broken, NotConnected, Operation, Response, WireRequest
from topics.client.wire.session import Session, decode_or_refuse, reset_after_fork, topic_path

T = TypeVar("T")
MAX_BATCH_RECORDS = 10_000
decode_ack = msgspec.json.Decoder(Ack).decode


# The JSON around records, and between two of them.
_BEGIN, _BETWEEN, _END = b'{"records":[{"data":', b'},{"data":', b"}],"
_BETWEEN_BYTES = len(_BETWEEN)
# More than the length of the JSON around all records of a request.
_AROUND_BYTES = 256


def render(
    codec: Codec[T], topic: str, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None
) -> bytes:
    """The JSON of one record, without the constant text around it."""
    encoded = codec.encode(topic, data)
    if tag is None and node is None and meta is None:
        return encoded
    parts = [encoded]
    for name, value in (("tag", tag), ("node", node), ("meta", meta)):
        if value is not None:
            parts.append(b'"%b":%b' % (name.encode(), encode_json(value)))
    return b",".join(parts)


class Writing(Generic[T]):
    """Sends single records and batches to one topic."""

    def __init__(self, session: Session, topic: str, codec: Codec[T], wanted: WantedTopic) -> None:
        self._session = session
        self.io = session.io
        self.new_key = session.new_key
        self.topic = topic
        self.codec = codec
        self.encode = encode_json if codec.is_plain else partial(codec.encode, topic)
        self.wanted = wanted
        # A topic with settings must not be created by a write, which would give it other settings.
        self._before_key = b'"create":false,"idempotency_key":' if wanted.is_given else b'"idempotency_key":'
        self._after_single = _END[:-1] + (b',"create":false}' if wanted.is_given else b"}")

    def write(
        self,
        data: T,
        tag: str | None,
        node: str | None,
        meta: dict[str, Any] | None,
        key: str | None,
    ) -> Operation[Ack]:
        body, header_key = self.single(data, tag, node, meta, key)
        return self.send(self.request(body, header_key), key or header_key)

    def single(
        self, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None, key: str | None
    ) -> tuple[bytes, str]:
        """The body of a write of one record, and a new idempotency key for its header.

        A given key goes into the body instead, because it may be any text: the header key is empty.
        """
        if tag is None and node is None and meta is None:
            row = self.encode(data)
        else:
            row = render(self.codec, self.topic, data, tag, node, meta)
        if key:
            return self.body((row,), key), ""
        return b"".join((_BEGIN, row, self._after_single)), self.new_key()

    def write_many(self, items: Iterable[T | Draft[T]], key: str | None) -> Operation[Ack]:
        if isinstance(items, str | bytes | Mapping):
            raise TypeError("write_many takes several records; this is one, and write takes it")
        rows = []
        for item in items:
            if isinstance(item, Draft):
                rows.append(render(self.codec, self.topic, item.data, item.tag, item.node, item.meta))
            else:
                rows.append(render(self.codec, self.topic, item, None, None, None))
        if not rows:
            raise ValueError("write_many needs at least one record")
        key = key or self.new_key()
        return self.send(self.request(self.body(rows, key)), key)

    async def send(self, request: WireRequest, key: str) -> Ack:
        await self.wanted.ensure()
        return await self.finish(request, key)

    def request(self, body: bytes, header_key: str = "") -> WireRequest:
        headers = ((KEY_HEADER, header_key),) if header_key else ()
        return WireRequest(method="POST", target=topic_path(self.topic), body=body, headers=headers)

    def body(self, rows: Sequence[bytes], key: str) -> bytes:
        # One seq may be returned twice: the shortest request is the fastest.
        if len(rows) == 1:
            return b"".join((_BEGIN, rows[0], _END, self._before_key, encode_json(key), b"}"))
        last = b"".join((rows[-1], _END, b'"return_seqs":false,', self._before_key, encode_json(key), b"}"))
        # Joined once, because a batch is large.
        return _BETWEEN.join([_BEGIN + rows[0], *rows[1:-1], last])

    async def finish(
        self,
        request: WireRequest,
        key: str,
        begun: Any = None,
        since: float | None = None,
        came: Response | Broken | None = None,
    ) -> Ack:
        while True:
            try:
                response = await self._session.write(self.topic, request, key, begun, since, came)
                return decode_or_refuse(decode_ack, response)
            except TopicNotFound:
                if not self.wanted.is_given:
                    raise
                # Dropped since it was looked at: created again with its settings.
                begun = since = came = None
                await self.wanted.ensure(again=True)


class Sent:
    """A write under way. `begun` is an attempt that can be waited for, `since` the time when it was sent."""

    __slots__ = ("begun", "key", "request", "since")

    def __init__(self, request: WireRequest, key: str) -> None:
        self.request = request
        self.key = key
        self.begun: Any = None
        self.since: float | None = None


class Batching(Generic[T]):
    """Collects records into batches, in order. One batch is under way while the next is filled.

    Threads or tasks `add` at any time. Everything else is done by one at a time, which holds `turn`.
    """

    def __init__(
        self, writing: Writing[T], batch_bytes: int, linger_ms: float, make_lock: Callable[[], Any]
    ) -> None:
        if batch_bytes < 1 or linger_ms < 0:
            raise ValueError("batch_bytes is 1 or more, linger_ms 0 or more")
        self._writing = writing
        self._encode = writing.encode
        self._batch_bytes = batch_bytes
        self._linger_s = linger_ms / 1000
        # Never replaced, so that a thread cannot add to a list that was sent meanwhile.
        self._rows: list[bytes] = []
        # The room of the batch in bytes. With several threads it is an estimate.
        self._bytes_left = batch_bytes
        # When the oldest record must be sent; 0 makes the next `add` look at `is_due`.
        self._due = 0.0
        # The batch under way.
        self._sent: Sent | None = None
        self._failure: TopicsError | None = None
        self._has_ended = False
        self.count = 0
        self.last: Ack | None = None
        # Only the holder of this lock sends, so that order is kept and writers wait for a slower server.
        self._make_lock = make_lock
        self.turn = make_lock()
        reset_after_fork(self)

    def add(self, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None) -> bool:
        """Add a record. Returns whether `is_due` has to be asked. Most calls do no more than this."""
        if tag is None and node is None and meta is None:
            row = self._encode(data)
        else:
            row = render(self._writing.codec, self._writing.topic, data, tag, node, meta)
        self._rows.append(row)
        self._bytes_left -= len(row) + _BETWEEN_BYTES
        return monotonic() >= self._due or self._bytes_left <= 0

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0 or len(self._rows) >= MAX_BATCH_RECORDS

    @property
    def due_s(self) -> float:
        """The time until the oldest record must be sent."""
        return self._due - monotonic()

    @property
    def is_due(self) -> bool:
        """Whether to `send` now. Raises an earlier failure."""
        self._raise_failure()
        if self._has_ended:
            self._rows.clear()  # nothing would send them
            raise RuntimeError("this writer's block has ended: what it is given now would never be written")
        if not self._rows:
            return False
        if not self._due:
            self._due = monotonic() + self._linger_s
        return self.is_full or self.due_s <= 0

    async def send(self) -> int:
        """Send a batch after the one before is answered. Returns the number of its records."""
        await self._settle()
        if not self._rows:
            return 0
        await self._writing.wanted.ensure()
        key = self._writing.new_key()
        body, count = self._take(key)
        # Noted before it is sent: after an interruption, the next call completes it.
        sent = self._sent = Sent(self._writing.request(body), key)
        sent.since = monotonic()
        try:
            sent.begun = await self._writing.io.begin(sent.request)
        except (NotConnected, Broken):
            sent.since = None  # retried when its answer is waited for
        return count

    def _take(self, key: str) -> tuple[bytes, int]:
        """Take a batch of the oldest records. Each waiting thread may have added one beyond the size."""
        rows = self._rows[:MAX_BATCH_RECORDS]
        body = self._writing.body(rows, key)
        if len(body) - len(rows[-1]) > self._batch_bytes + _AROUND_BYTES:
            room = self._batch_bytes
            for index, row in enumerate(rows):
                room -= len(row) + _BETWEEN_BYTES
                if room <= 0:
                    rows = rows[: index + 1]
                    body = self._writing.body(rows, key)
                    break
        # The time of the next batch begins with its first record.
        self._due = 0.0
        del self._rows[: len(rows)]
        self._bytes_left = self._batch_bytes - sum([len(row) + _BETWEEN_BYTES for row in self._rows])
        return body, len(rows)

    async def flush(self) -> Ack | None:
        """Send all records that were added, and wait for their acknowledgements."""
        waiting = len(self._rows)
        while waiting > 0:
            waiting -= await self.send()
        await self._settle()
        return self.last

    async def end(self, error: BaseException | None) -> None:
        """Write the rest. A failure is added as a note to an `error` of the caller."""
        try:
            await self.flush()
        except TopicsError as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(f"and what the writer still had was not written: {failure}")
        finally:
            self._has_ended, self._due = True, 0.0

    def reset_in_child(self) -> None:
        """After a fork, drop the records that the parent writes."""
        self.turn = self._make_lock()  # a thread of the parent may hold the old one
        self._rows, self._bytes_left, self._sent = [], self._batch_bytes, None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._rows.clear()  # they are never sent
            raise self._failure

    async def _settle(self) -> None:
        self._raise_failure()
        sent = self._sent
        if sent is None:
            return
        begun, sent.begun = sent.begun, None  # after an interruption, it is sent again
        try:
            ack = await self._writing.finish(sent.request, sent.key, begun, sent.since)
        except TopicsError as error:
            # Later records must not overtake the failed batch.
            self._sent, self._failure, self._due = None, error, 0.0
            raise
        self._sent = None
        self.count += ack.count
        self.last = ack

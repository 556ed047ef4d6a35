"""Writing: records to bytes, batches under way, and the key that makes a repeat harmless."""

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from topics.client.encoding import Codec, encode_json
from topics.client.errors import TopicNotFound, TopicsError
from topics.client.operations.settings import Wanted
from topics.client.records import Ack, Draft
from topics.client.wire.effects import Begin, Broken, NotConnected, Operation, Request, Response
from topics.client.wire.session import Session, new_key, topic_path, understood

T = TypeVar("T")
MAX_BATCH_RECORDS = 10_000
_decode_ack = msgspec.json.Decoder(Ack).decode


# What stands around records, and between two of them.
_BEGIN, _BETWEEN, _END = b'{"records":[{"data":', b'},{"data":', b"}],"
_BETWEEN_BYTES = len(_BETWEEN)


def render(
    codec: Codec[T], topic: str, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None
) -> bytes:
    """One record as the server reads it, from its data on: what stands around it is always the same."""
    encoded = codec.encode(topic, data)
    if tag is None and node is None and meta is None:
        return encoded
    parts = [encoded]
    for name, value in (("tag", tag), ("node", node), ("meta", meta)):
        if value is not None:
            parts.append(b'"%b":%b' % (name.encode(), encode_json(value)))
    return b",".join(parts)


class Writing(Generic[T]):
    """Single writes and whole batches into one topic."""

    def __init__(self, session: Session, topic: str, codec: Codec[T], wanted: Wanted) -> None:
        self._session = session
        self.topic = topic
        self.codec = codec
        self.wanted = wanted

    def write(
        self,
        data: T,
        tag: str | None,
        node: str | None,
        meta: dict[str, Any] | None,
        key: str | None,
    ) -> Operation[Ack]:
        return (yield from self.send([render(self.codec, self.topic, data, tag, node, meta)], key))

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
        return (yield from self.send(rows, key))

    def send(self, rows: list[bytes], key: str | None) -> Operation[Ack]:
        key = key or new_key()
        if not self.wanted.is_there:
            yield from self.wanted.ensure()
        return (yield from self.finish(self.request(rows, key), key))

    def request(self, rows: list[bytes], key: str) -> Request:
        more = b'"idempotency_key":%b}' % encode_json(key)
        # A topic with settings is made with them, never by chance with others.
        if self.wanted.is_given:
            more = b'"create":false,' + more
        # A single record's seq may be told twice: a write of nothing but record and key is the quickest.
        if len(rows) > 1:
            more = b'"return_seqs":false,' + more
        body = b"".join((_BEGIN, _BETWEEN.join(rows), _END, more))
        return Request(method="POST", target=topic_path(self.topic), body=body)

    def finish(self, request: Request, key: str, begun: Any = None) -> Operation[Ack]:
        while True:
            try:
                response: Response = yield from self._session.write(self.topic, request, key, begun)
                return understood(_decode_ack, response)
            except TopicNotFound:
                if not self.wanted.is_given:
                    raise
                # Dropped since it was looked at: made again, as it was wanted.
                begun = None
                yield from self.wanted.ensure(again=True)


class Batching(Generic[T]):
    """Records gathered into batches, one under way while the next is filled. Order is kept."""

    def __init__(self, writing: Writing[T], batch_bytes: int, linger_ms: float) -> None:
        if batch_bytes < 1 or linger_ms < 0:
            raise ValueError("batch_bytes is 1 or more, linger_ms 0 or more")
        self._writing = writing
        self._is_plain = writing.codec.is_plain
        self._batch_bytes = batch_bytes
        self._linger_s = linger_ms / 1000
        self._rows: list[bytes] = []
        # How many bytes the batch still takes.
        self._bytes_left = batch_bytes
        # Until when the oldest of them may wait.
        self._due = 0.0
        # Request, key and what was begun of the batch under way.
        self._sent: tuple[Request, str, Any] | None = None
        self._failure: TopicsError | None = None
        self.count = 0
        self.last: Ack | None = None

    def add(self, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None) -> bool:
        """Whether it is time to `send`."""
        if self._failure is not None:
            raise self._failure
        if self._is_plain and tag is None and node is None and meta is None:
            row = encode_json(data)
        else:
            row = render(self._writing.codec, self._writing.topic, data, tag, node, meta)
        now = monotonic()
        rows = self._rows
        if not rows:
            self._due = now + self._linger_s
        rows.append(row)
        self._bytes_left -= len(row) + _BETWEEN_BYTES
        return now >= self._due or self._bytes_left <= 0 or len(rows) >= MAX_BATCH_RECORDS

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0 or len(self._rows) >= MAX_BATCH_RECORDS

    @property
    def due_s(self) -> float:
        """How long the oldest record may still wait."""
        return self._due - monotonic()

    def send(self) -> Operation[None]:
        """Hand the batch to the server, once the one before has been answered."""
        yield from self._settle()
        if not self._rows:
            return
        yield from self._writing.wanted.ensure()
        rows, self._rows, self._bytes_left = self._rows, [], self._batch_bytes
        key = new_key()
        request = self._writing.request(rows, key)
        try:
            begun = yield Begin(request)
        except (NotConnected, Broken):
            begun = None  # patiently, when its answer is waited for
        self._sent = (request, key, begun)

    def flush(self) -> Operation[Ack | None]:
        """Everything given so far is in the log."""
        yield from self.send()
        yield from self._settle()
        return self.last

    def end(self, error: BaseException | None) -> Operation[None]:
        """What was given is written; after an error of the caller's, that one is what counts."""
        try:
            yield from self.flush()
        except TopicsError as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(f"and what the writer still had was not written: {failure}")

    def _settle(self) -> Operation[None]:
        if self._failure is not None:
            raise self._failure
        if self._sent is None:
            return
        (request, key, begun), self._sent = self._sent, None
        try:
            ack = yield from self._writing.finish(request, key, begun)
        except TopicsError as error:
            # What follows must not overtake what failed.
            self._failure = error
            raise
        self.count += ack.count
        self.last = ack

"""Writing: records to bytes, batches under way, and the key that makes a repeat harmless."""

import time
from collections.abc import Iterable
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


def render(
    codec: Codec[T], topic: str, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None
) -> bytes:
    """One record as the server reads it."""
    encoded = codec.encode(topic, data)
    if tag is None and node is None and meta is None:
        return b'{"data":%b}' % encoded
    parts = [b'{"data":' + encoded]
    for name, value in (("tag", tag), ("node", node), ("meta", meta)):
        if value is not None:
            parts.append(b'"%b":%b' % (name.encode(), encode_json(value)))
    return b",".join(parts) + b"}"


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
        yield from self.wanted.ensure()
        return (yield from self.finish(self.request(rows, key), key))

    def request(self, rows: list[bytes], key: str) -> Request:
        # A topic with settings is made with them, never by chance with others.
        create = b'"create":false,' if self.wanted.is_given else b""
        body = b'{"records":[%b],%b"return_seqs":false,"idempotency_key":%b}' % (
            b",".join(rows),
            create,
            encode_json(key),
        )
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
        self._batch_bytes = batch_bytes
        self._linger_s = linger_ms / 1000
        self._rows: list[bytes] = []
        self._bytes = 0
        self._oldest = 0.0
        # Request, key and what was begun of the batch under way.
        self._sent: tuple[Request, str, Any] | None = None
        self._failure: TopicsError | None = None
        self.count = 0
        self.last: Ack | None = None

    def add(self, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None) -> bool:
        """Whether it is time to `send`."""
        if self._failure is not None:
            raise self._failure
        row = render(self._writing.codec, self._writing.topic, data, tag, node, meta)
        if not self._rows:
            self._oldest = time.monotonic()
        self._rows.append(row)
        self._bytes += len(row)
        return (
            self._bytes >= self._batch_bytes
            or len(self._rows) >= MAX_BATCH_RECORDS
            or time.monotonic() - self._oldest >= self._linger_s
        )

    @property
    def is_empty(self) -> bool:
        return not self._rows and self._sent is None

    @property
    def due_s(self) -> float:
        """How long the oldest record may still wait."""
        return self._oldest + self._linger_s - time.monotonic()

    def send(self) -> Operation[None]:
        """Hand the batch to the server, once the one before has been answered."""
        yield from self._settle()
        if not self._rows:
            return
        yield from self._writing.wanted.ensure()
        rows, self._rows, self._bytes = self._rows, [], 0
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

"""The log for programs that block: `Topics`, its topics and their writers.

Every method runs an operation that `AsyncTopics` runs as well; what is here is only how to call it and wait.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

from topics.client.cursors.cursor import Cursor
from topics.client.encoding import Codec, codec_for
from topics.client.operations import managing
from topics.client.operations.choice import Choice, OnLoss, milliseconds
from topics.client.operations.pages import single_record
from topics.client.operations.queueing import Holding, give_back
from topics.client.operations.reading import Ignored, Reading
from topics.client.operations.settings import LogSettings, TopicSettings, Wanted
from topics.client.operations.watching import Watching, watching
from topics.client.operations.writing import Batching, Writing
from topics.client.records import Ack, Answer, Draft, Lost, Record, Restarted
from topics.client.wire.address import address_of
from topics.client.wire.blocking import Blocking
from topics.client.wire.effects import Operation
from topics.client.wire.session import Session

if TYPE_CHECKING:
    from topics.client.jobs import Queue

T = TypeVar("T")
R = TypeVar("R")


class Topics:
    """A server. Threads and forked processes may share it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 10,
        retry_s: float = 30,
    ) -> None:
        address = address_of(url, api_key)
        self.url = address.url
        self._session = Session(address.url, retry_s)
        self._io = Blocking(address, timeout_s)
        self._holding = Holding()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what is open. Jobs that were claimed and not handed out are free again."""
        self._io.run(give_back(self._session, self._holding))
        self._io.close()

    @overload
    def topic(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> "Topic[Any]": ...
    @overload
    def topic(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "Topic[T]": ...
    def topic(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "Topic[Any]":
        """A topic, of which nothing is asked yet. Its data is JSON, or of this type.

        With settings, the first write makes the topic if it is missing; one that differs is `ConfigDiffers`.
        """
        return Topic(self._io, self._session, name, codec_for(type), dict(settings))

    @overload
    def queue(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> "Queue[Any]": ...
    @overload
    def queue(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "Queue[T]": ...
    def queue(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "Queue[Any]":
        """A queue: the first push or claim makes it if it is missing."""
        from topics.client.jobs import Queue

        return Queue(self._io, self._session, name, codec_for(type), dict(settings), self._holding)

    def list_topics(self, prefix: str = "") -> Iterator[Answer]:
        """All topics whose names begin so, as the server lists them."""
        return _entries(self._io, managing.topics(self._session, prefix))

    def routers(self) -> Iterator[Answer]:
        return _entries(self._io, managing.routers(self._session))

    def watch(
        self,
        cursors: Mapping[str, Cursor | None],
        *,
        idle_s: float | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Iterator[Record[Any]]:
        """Records of several topics as they come, each with its cursor; None begins at the head."""
        return self._watch(watching(self._session, cursors, idle_s, on_loss, ignore_loss))

    def _watch(self, watched: Watching) -> Iterator[Record[Any]]:
        run = self._io.run
        try:
            run(watched.begin(run))
            while (turn := run(watched.next_turn())) is not None:
                reading, batch = turn
                if batch.loss is not None:
                    run(reading.meet(batch.loss))
                for record in batch.records:
                    reading.cursor.hand_out(record)
                    yield record
                    if reading.done(record):
                        run(reading.cursor.flush())
                run(reading.batch_done(batch))
        finally:
            run(watched.close())

    def route(self, name: str, source: str, dest: str, *, tag: str | None = None) -> Answer:
        return self._io.run(managing.route(self._session, name, source, dest, tag))

    def unroute(self, name: str) -> Answer:
        return self._io.run(managing.unroute(self._session, name))

    def purge(self) -> Answer:
        return self._io.run(managing.purge(self._session))

    def metrics(self) -> dict[str, Any]:
        return self._io.run(managing.metrics(self._session))

    def info(self) -> dict[str, Any]:
        return self._io.run(managing.info(self._session))


def _entries(io: Blocking, pages: managing.Pages) -> Iterator[Answer]:
    while (page := io.run(pages.next_page())) is not None:
        yield from page


class Topic(Generic[T]):
    def __init__(
        self, io: Blocking, session: Session, name: str, codec: Codec[T], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self._io = io
        self._session = session
        self._codec = codec
        self._settings = settings
        self._writing = Writing(session, name, codec, Wanted(session, name, settings))
        self._ignored = Ignored()

    @property
    def losses_ignored(self) -> int:
        """How many losses `ignore_loss` has passed over."""
        return self._ignored.count

    def _run(self, operation: Operation[R]) -> R:
        return self._io.run(operation)

    # --- writing ----------------------------------------------------------------------------------------

    def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Ack:
        return self._run(self._writing.write(data, tag, node, meta, idempotency_key))

    def write_many(self, items: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Ack:
        return self._run(self._writing.write_many(items, idempotency_key))

    def writer(self, *, batch_bytes: int = 1 << 20, linger_ms: float = 5) -> "Writer[T]":
        return Writer(self._io, Batching(self._writing, batch_bytes, linger_ms))

    # --- reading ----------------------------------------------------------------------------------------

    def read(
        self,
        cursor: Cursor | None = None,
        *,
        from_seq: int | None = None,
        last: int | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        tag: str | None = None,
        node: str | list[str] | None = None,
        limit: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Iterator[Record[T]]:
        """Everything up to the head, from behind the cursor's position."""
        choice = Choice(
            from_seq=from_seq,
            last=last,
            since=milliseconds(since),
            until=milliseconds(until),
            tag=tag,
            node=node,
            limit=limit,
            on_loss=on_loss,
            ignore_loss=ignore_loss,
        )
        return self._records(self._reading(cursor, choice))

    def tail(
        self,
        cursor: Cursor | None = None,
        *,
        from_seq: int | None = None,
        last: int | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        tag: str | None = None,
        node: str | list[str] | None = None,
        limit: int | None = None,
        idle_s: float | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Iterator[Record[T]]:
        """As `read`, and then what comes, for as long as it is asked for."""
        choice = Choice(
            from_seq=from_seq,
            last=last,
            since=milliseconds(since),
            until=milliseconds(until),
            tag=tag,
            node=node,
            limit=limit,
            follow=True,
            from_head=True,
            idle_s=idle_s,
            on_loss=on_loss,
            ignore_loss=ignore_loss,
        )
        return self._records(self._reading(cursor, choice))

    def items(
        self,
        cursor: Cursor | None = None,
        *,
        from_seq: int | None = None,
        last: int | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        tag: str | None = None,
        node: str | list[str] | None = None,
        limit: int | None = None,
        follow: bool = False,
        idle_s: float | None = None,
    ) -> Iterator[Record[T] | Lost | Restarted]:
        """Records, and losses in their place among them."""
        choice = Choice(
            from_seq=from_seq,
            last=last,
            since=milliseconds(since),
            until=milliseconds(until),
            tag=tag,
            node=node,
            limit=limit,
            follow=follow,
            idle_s=idle_s,
        )
        return self._items(self._reading(cursor, choice))

    def _reading(self, cursor: Cursor | None, choice: Choice) -> Reading[T]:
        return Reading(self._session, self.name, self._codec, cursor, choice, self._ignored)

    def _records(self, reading: Reading[T]) -> Iterator[Record[T]]:
        run, cursor, memory = self._run, reading.cursor, reading.memory
        run(reading.begin(run))
        try:
            while (batch := run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    run(reading.meet(batch.loss))
                if memory is not None:
                    for record in batch.records:
                        yield record
                        memory.done = record
                else:
                    for record in batch.records:
                        cursor.hand_out(record)
                        yield record
                        if reading.done(record):
                            run(cursor.flush())
                run(reading.batch_done(batch))
        finally:
            run(reading.close())

    def _items(self, reading: Reading[T]) -> Iterator[Record[T] | Lost | Restarted]:
        run, cursor = self._run, reading.cursor
        run(reading.begin(run))
        try:
            while (batch := run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    yield batch.loss
                    run(reading.pass_loss(batch.loss))
                for record in batch.records:
                    cursor.hand_out(record)
                    yield record
                    if reading.done(record):
                        run(cursor.flush())
                run(reading.batch_done(batch))
        finally:
            run(reading.close())

    def get(self, seq: int) -> Record[T]:
        return single_record(self._codec, self._run(managing.get(self._session, self.name, seq)))

    # --- the topic itself -------------------------------------------------------------------------------

    def create(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Make it, with the settings it was opened with and these. One that is there already is refused."""
        return self._run(managing.create(self._session, self.name, {**self._settings, **settings}))

    def describe(self) -> Answer:
        return self._run(managing.describe(self._session, self.name))

    def configure(self, **settings: Unpack[TopicSettings]) -> Answer:
        """These settings change, the rest stays."""
        return self._run(managing.configure(self._session, self.name, dict(settings)))

    def delete(
        self,
        *,
        before_seq: int | None = None,
        tag: str | None = None,
        seqs: list[int] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        return self._run(managing.delete(self._session, self.name, before_seq, tag, seqs, dry_run))

    def drop(self, *, if_empty: bool = False, dry_run: bool = False) -> Answer:
        return self._run(managing.drop(self._session, self.name, if_empty, dry_run))

    def ledger(self) -> Iterator[Answer]:
        return _entries(self._io, managing.ledger(self._session, self.name))

    def cursors(self) -> Iterator[Answer]:
        return _entries(self._io, managing.cursors(self._session, self.name))


class Writer(Generic[T]):
    """Gathers records into batches. Leaving the `with` block writes what is left."""

    def __init__(self, io: Blocking, batching: Batching[T]) -> None:
        self._io = io
        self._batching = batching

    def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if self._batching.add(data, tag, node, meta):
            self._io.run(self._batching.send())

    def flush(self) -> Ack | None:
        return self._io.run(self._batching.flush())

    @property
    def count(self) -> int:
        """Records that are acknowledged."""
        return self._batching.count

    @property
    def last(self) -> Ack | None:
        return self._batching.last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """What was given is written, also when the block ends with an error of its own."""
        self._io.run(self._batching.end(error))
        return False

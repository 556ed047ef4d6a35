"""A topic, for programs that block: writing, reading, columns, and the topic itself; and its writer."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

from topics.client.cursors.cursor import Cursor
from topics.client.encoding import Codec
from topics.client.operations import managing
from topics.client.operations.choice import Choice, OnLoss, milliseconds
from topics.client.operations.columns import Columns, needed
from topics.client.operations.pages import single_record
from topics.client.operations.reading import Ignored, Reading
from topics.client.operations.settings import TopicSettings, Wanted
from topics.client.operations.writing import Batching, Writing
from topics.client.records import Ack, Answer, Draft, Lost, Record, Restarted
from topics.client.wire.blocking import Blocking
from topics.client.wire.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


def entries(io: Blocking, pages: managing.Pages) -> Iterator[Answer]:
    while (page := io.run(pages.next_page())) is not None:
        yield from page


class Topic(Generic[T]):
    """One topic; `Topics.topic` makes it. `name` is its name."""

    def __init__(
        self, io: Blocking, session: Session, name: str, codec: Codec[T], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self._io = io
        self._run = io.run
        self._session = session
        self._codec = codec
        self._settings = settings
        wanted = Wanted(session, name, settings)
        self._writing = Writing(session, name, codec, wanted)
        self._ignored = Ignored()
        self._columns = Columns(session, name, wanted, self._ignored)

    @property
    def losses_ignored(self) -> int:
        """How many losses `ignore_loss` has passed over."""
        return self._ignored.count

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
        """One record. It is in the log when this returns."""
        return self._run(self._writing.write(data, tag, node, meta, idempotency_key))

    def write_many(self, items: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Ack:
        """One batch of data or `Draft`s: all of it is written, or nothing."""
        return self._run(self._writing.write_many(items, idempotency_key))

    def writer(self, *, batch_bytes: int = 1 << 20, linger_ms: float = 5) -> "Writer[T]":
        """Gathers records into batches, in a `with` block."""
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
                        cursor._hand_out(record)
                        yield record
                        if reading.done(record):
                            run(cursor._flush())
                run(reading.batch_done(batch))
        finally:
            run(reading.close(), ends=True)

    def _items(self, reading: Reading[T]) -> Iterator[Record[T] | Lost | Restarted]:
        run, cursor = self._run, reading.cursor
        run(reading.begin(run))
        try:
            while (batch := run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    yield batch.loss
                    run(reading.pass_loss(batch.loss))
                for record in batch.records:
                    cursor._hand_out(record)
                    yield record
                    if reading.done(record):
                        run(cursor._flush())
                run(reading.batch_done(batch))
        finally:
            run(reading.close(), ends=True)

    def get(self, seq: int) -> Record[T]:
        """One record; `RecordGone` says why it is not there any more."""
        return single_record(self._codec, self._run(managing.get(self._session, self.name, seq)))

    # --- as columns -------------------------------------------------------------------------------------

    def to_arrow(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> "pa.Table":
        """Everything behind `from_seq` as columns: seq, ts, node, tag, data, meta. Data and meta are JSON."""
        return self._run(self._columns.read(from_seq, on_loss, ignore_loss))

    def to_pandas(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Any:
        """As `to_arrow`, as a `pandas.DataFrame`."""
        needed("pandas")
        return self._run(self._columns.read(from_seq, on_loss, ignore_loss)).to_pandas()

    def to_polars(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Any:
        """As `to_arrow`, as a `polars.DataFrame`."""
        polars = needed("polars")
        return polars.from_arrow(self._run(self._columns.read(from_seq, on_loss, ignore_loss)))

    def write_arrow(self, table: "pa.Table") -> Ack:
        """Rows with a column `data` of JSON, and `tag`, `node`, `meta`; `seq` and `ts` are given anew."""
        return self._run(self._columns.write(table))

    # --- the topic itself -------------------------------------------------------------------------------

    def create(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Make it, with the settings it was opened with and these. One that is there already is refused."""
        return self._run(managing.create(self._session, self.name, {**self._settings, **settings}))

    def describe(self) -> Answer:
        """Its state and its settings, as they are at this moment."""
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
        """Remove records for good: below a seq, with a tag, or just these; several choices narrow it."""
        return self._run(managing.delete(self._session, self.name, before_seq, tag, seqs, dry_run))

    def drop(self, *, if_empty: bool = False, dry_run: bool = False) -> Answer:
        """Remove the topic with all that is in it."""
        return self._run(managing.drop(self._session, self.name, if_empty, dry_run))

    def ledger(self) -> Iterator[Answer]:
        """Which seqs are gone, and why: `first_seq`, `last_seq`, `kind`."""
        return entries(self._io, managing.ledger(self._session, self.name))

    def cursors(self) -> Iterator[Answer]:
        """The consumers whose position the server keeps, and how far behind they are."""
        return entries(self._io, managing.cursors(self._session, self.name))


class Writer(Generic[T]):
    """Gathers records into batches. Leaving the `with` block writes what is left. Threads may share it."""

    def __init__(self, io: Blocking, batching: Batching[T]) -> None:
        self._io = io
        self._batching = batching
        self._add = batching.add

    def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Give it one record; it waits when the server is slower."""
        if self._add(data, tag, node, meta):
            with self._batching.turn:
                if self._batching.is_due:
                    self._io.run(self._batching.send())

    def flush(self) -> Ack | None:
        """Everything given so far is in the log; the last acknowledgement."""
        with self._batching.turn:
            return self._io.run(self._batching.flush())

    @property
    def count(self) -> int:
        """Records that are acknowledged."""
        return self._batching.count

    @property
    def last(self) -> Ack | None:
        """The last acknowledgement."""
        return self._batching.last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """What was given is written, also when the block ends with an error of its own."""
        with self._batching.turn:
            self._io.run(self._batching.end(error))
        return False

# Generated from aio_topic.py by scripts/make_blocking_sdk.py: do not edit.
"""A topic and its writer, for programs that block: `Topic` and `Writer`."""

import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

from topics.client.cursors import Cursor
from topics.client.encoding import RAW, Codec
from topics.client.operations import managing
from topics.client.operations.columns import ReplyColumns, needed
from topics.client.operations.pages import single_record
from topics.client.operations.reading import (
    ColumnArguments,
    IgnoredLosses,
    ReadArguments,
    Reading,
    ReadOptions,
    Selection,
    read_options,
)
from topics.client.operations.settings import TopicSettings, WantedTopic
from topics.client.operations.writing import Batching, Writing
from topics.client.records import Ack, Answer, Draft, Lost, Record, Restarted
from topics.client.wire.blocking import Blocking
from topics.client.wire.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def entries(io: Blocking, pages: managing.Pages) -> Iterator[Answer]:
    """The entries of a list of the server."""
    while (page := io.run(pages.next_page())) is not None:
        for entry in page:
            yield Answer(entry)


class Topic(Generic[T]):
    """One topic; `Topics.topic` returns it. `name` is its name."""

    def __init__(
        self, io: Blocking, session: Session, name: str, codec: Codec[T], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self._io = io
        self._run = io.run
        self._session = session
        self._codec = codec
        self._settings = settings
        self._writing = Writing(session, name, codec, WantedTopic(session, name, settings))
        self._ignored = IgnoredLosses()

    @property
    def losses_ignored(self) -> int:
        """The number of losses that `ignore_loss` has passed."""
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
        """Append one record. It is in the log when this returns."""
        return self._run(self._writing.write(data, tag, node, meta, idempotency_key))

    def write_many(self, items: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Ack:
        """Append data or `Draft`s as one batch: all of it is written, or nothing."""
        return self._run(self._writing.write_many(items, idempotency_key))

    def writer(self, *, batch_bytes: int = 1 << 20, linger_ms: float = 5) -> "Writer[T]":
        """Return a writer, which collects records into batches in its `with` block."""
        return Writer(self._io, Batching(self._writing, batch_bytes, linger_ms, threading.Lock))

    # --- reading ----------------------------------------------------------------------------------------

    def read(self, cursor: Cursor | None = None, **options: Unpack[ReadArguments]) -> Iterator[Record[T]]:
        """The records after the cursor's position, up to the head."""
        return self._items(self._reading(cursor, read_options(ReadArguments, options)))

    def tail(
        self, cursor: Cursor | None = None, *, idle_s: float | None = None, **options: Unpack[ReadArguments]
    ) -> Iterator[Record[T]]:
        """The records that `read` returns, then new ones, until `idle_s` passes without a record.

        Without a cursor or a beginning, it begins at the head.
        """
        tailed = read_options(ReadArguments, options, follow=True, from_head=True, idle_s=idle_s)
        return self._items(self._reading(cursor, tailed))

    def items(
        self,
        cursor: Cursor | None = None,
        *,
        follow: bool = False,
        idle_s: float | None = None,
        raw: bool = False,
        **options: Unpack[Selection],
    ) -> Iterator[Record[T] | Lost | Restarted]:
        """Records, with losses in their place among them.

        With `raw`, data and meta are the JSON that was written, as `msgspec.Raw`.
        """
        chosen = read_options(Selection, options, follow=follow, idle_s=idle_s, yields_losses=True)
        return self._items(self._reading(cursor, chosen, RAW if raw else None))

    def _reading(
        self, cursor: Cursor | None, options: ReadOptions, codec: Codec[Any] | None = None
    ) -> Reading[Any]:
        codec = self._codec if codec is None else codec
        return Reading(self._session, self.name, codec, cursor, options, self._ignored)

    def _items(self, reading: Reading[Any]) -> Iterator[Any]:
        run, cursor, memory = self._run, reading.cursor, reading.memory
        run(reading.begin())
        try:
            while (batch := run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    if reading.yields_losses:
                        yield batch.loss
                    run(reading.handle_loss(batch.loss))
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

    def get(self, seq: int) -> Record[T]:
        """Return one record. If it is not there any more, `RecordGone` tells why."""
        response = self._run(managing.get(self._session, self.name, seq))
        return single_record(self._codec, response.body)

    # --- columns ----------------------------------------------------------------------------------------

    @property
    def _columns(self) -> ReplyColumns:
        return ReplyColumns(self._session, self.name, self._writing.wanted, self._ignored)

    def to_arrow(self, **options: Unpack[ColumnArguments]) -> "pa.Table":
        """All records after `from_seq` as columns: seq, ts, node, tag, data, meta. Data and meta are JSON."""
        return self._run(self._columns.read(options))

    def to_pandas(self, **options: Unpack[ColumnArguments]) -> Any:
        """The columns of `to_arrow`, as a `pandas.DataFrame`."""
        needed("pandas")
        return (self.to_arrow(**options)).to_pandas()

    def to_polars(self, **options: Unpack[ColumnArguments]) -> Any:
        """The columns of `to_arrow`, as a `polars.DataFrame`."""
        return needed("polars").from_arrow(self.to_arrow(**options))

    def write_arrow(self, table: "pa.Table") -> Ack:
        """Append the rows of a table: a column `data` of JSON, and `tag`, `node`, `meta` if it has them.

        The server assigns `seq` and `ts`.
        """
        return self._run(self._columns.write(table))

    # --- the topic itself -------------------------------------------------------------------------------

    def create(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Create the topic, with the settings it was opened with and these; refused if it exists."""
        return self._run(managing.create(self._session, self.name, {**self._settings, **settings}))

    def describe(self) -> Answer:
        """The current state and settings of the topic."""
        return Answer(self._run(managing.state(self._session, self.name)))

    def configure(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Change these settings; the others stay."""
        return self._run(managing.configure(self._session, self.name, dict(settings)))

    def delete(
        self,
        *,
        before_seq: int | None = None,
        tag: str | None = None,
        seqs: list[int] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Delete records for good: below a seq, with a tag, or by seq; a record must match all that is given.

        With `dry_run`, only count them.
        """
        selector = {"before_seq": before_seq, "match": tag, "seqs": seqs, "dry_run": dry_run or None}
        return Answer(self._run(managing.delete(self._session, self.name, selector)))

    def drop(self, *, if_empty: bool = False, dry_run: bool = False) -> Answer:
        """Remove the topic and all its records."""
        return Answer(self._run(managing.drop(self._session, self.name, if_empty, dry_run)))

    def ledger(self) -> Iterator[Answer]:
        """The ranges of seqs that are gone, and why: `first_seq`, `last_seq`, `kind`."""
        return entries(self._io, managing.ledger(self._session, self.name))

    def cursors(self) -> Iterator[Answer]:
        """The consumers whose position the server keeps, and how far behind the head they are."""
        return entries(self._io, managing.cursors(self._session, self.name))


class Writer(Generic[T]):
    """Collects records into batches. The end of the `with` block writes the rest.

    Threads may share it.
    """

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
        """Add one record to the batch. Waits while the server is slower than its writers."""
        if self._add(data, tag, node, meta):
            with self._batching.turn:
                if self._batching.is_due:
                    self._io.run(self._batching.send())

    def flush(self) -> Ack | None:
        """Write all records given so far; returns the last acknowledgement."""
        with self._batching.turn:
            return self._io.run(self._batching.flush())

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
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
        """Write the rest, also when the block ends with an error."""
        with self._batching.turn:
            self._io.run(self._batching.end(error))
        return False

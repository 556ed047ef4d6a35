"""A topic and its writer, for programs on asyncio: `AsyncTopic` and `AsyncWriter`.

`topic` is generated from this module by `scripts/make_blocking_sdk.py`: edit this one.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

import msgspec

from topics.client.cursors import Cursor
from topics.client.encoding import RAW, Codec
from topics.client.errors import TopicsError
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
from topics.client.operations.writing import Batching, Writing, decode_ack
from topics.client.records import Ack, Answer, Draft, Lost, Record, Restarted
from topics.client.wire.async_io import IS_ASYNC, AsyncIO
from topics.client.wire.requests import Broken, Response
from topics.client.wire.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


async def entries(io: AsyncIO, pages: managing.Pages) -> AsyncIterator[Answer]:
    """The entries of a list of the server."""
    while (page := await io.run(pages.next_page())) is not None:
        for entry in page:
            yield Answer(entry)


class AsyncTopic(Generic[T]):
    """One topic; `AsyncTopics.topic` returns it. `name` is its name."""

    def __init__(
        self, io: AsyncIO, session: Session, name: str, codec: Codec[T], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self._io = io
        self._run = io.run
        self._session = session
        self._codec = codec
        self._settings = settings
        self._writing = Writing(session, name, codec, WantedTopic(session, name, settings))
        self._ignored = IgnoredLosses()
        if IS_ASYNC:
            self._aio_before_headers = io.before_headers(self._writing.request(b""))

    @property
    def losses_ignored(self) -> int:
        """The number of losses that `ignore_loss` has passed."""
        return self._ignored.count

    # --- writing ----------------------------------------------------------------------------------------

    async def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Ack:
        """Append one record. It is in the log when this returns."""
        if IS_ASYNC:
            return await self._aio_write(data, tag, node, meta, idempotency_key)
        return await self._run(self._writing.write(data, tag, node, meta, idempotency_key))

    async def _aio_write(
        self, data: T, tag: str | None, node: str | None, meta: dict[str, Any] | None, given_key: str | None
    ) -> Ack:
        """Send the record at once if a connection is free, without the steps of an operation.

        Most writes find a free connection and get an acknowledgement. All others continue as an operation.
        """
        writing, since = self._writing, monotonic()
        body, header_key = writing.single(data, tag, node, meta, given_key)
        key = header_key or given_key or ""
        asked = None
        if header_key and writing.wanted.is_there:
            asked = self._io.attempt(self._aio_before_headers, header_key, body, since)
        if asked is None:
            return await self._run(writing.send(writing.request(body, header_key), key))
        connection, answer = asked
        came: Response | Broken | None
        try:
            came = heard = await answer
            if heard is not None and heard.status == 200:
                return decode_ack(heard.body)
        except msgspec.DecodeError:
            pass
        except Broken as error:
            came = error
        except BaseException:
            if connection is not None:
                connection.abandon(answer)
            raise
        request = writing.request(body, header_key)
        if came is None:
            return await self._run(writing.send(request, key))
        return await self._run(writing.finish(request, key, None, since, came))

    async def write_many(self, items: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Ack:
        """Append data or `Draft`s as one batch: all of it is written, or nothing."""
        return await self._run(self._writing.write_many(items, idempotency_key))

    def writer(self, *, batch_bytes: int = 1 << 20, linger_ms: float = 5) -> "AsyncWriter[T]":
        """Return a writer, which collects records into batches in its `async with` block."""
        return AsyncWriter(self._io, Batching(self._writing, batch_bytes, linger_ms, asyncio.Lock))

    # --- reading ----------------------------------------------------------------------------------------

    def read(
        self, cursor: Cursor | None = None, **options: Unpack[ReadArguments]
    ) -> AsyncIterator[Record[T]]:
        """The records after the cursor's position, up to the head."""
        return self._items(self._reading(cursor, read_options(ReadArguments, options)))

    def tail(
        self, cursor: Cursor | None = None, *, idle_s: float | None = None, **options: Unpack[ReadArguments]
    ) -> AsyncIterator[Record[T]]:
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
    ) -> AsyncIterator[Record[T] | Lost | Restarted]:
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

    async def _items(self, reading: Reading[Any]) -> AsyncIterator[Any]:
        run, cursor, memory = self._run, reading.cursor, reading.memory
        await run(reading.begin())
        try:
            while (batch := await run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    if reading.yields_losses:
                        yield batch.loss
                    await run(reading.handle_loss(batch.loss))
                if memory is not None:
                    for record in batch.records:
                        yield record
                        memory.done = record
                else:
                    for record in batch.records:
                        cursor._hand_out(record)
                        yield record
                        if reading.done(record):
                            await run(cursor._flush())
                await run(reading.batch_done(batch))
        finally:
            await run(reading.close(), ends=True)

    async def get(self, seq: int) -> Record[T]:
        """Return one record. If it is not there any more, `RecordGone` tells why."""
        response = await self._run(managing.get(self._session, self.name, seq))
        return single_record(self._codec, response.body)

    # --- columns ----------------------------------------------------------------------------------------

    @property
    def _columns(self) -> ReplyColumns:
        return ReplyColumns(self._session, self.name, self._writing.wanted, self._ignored)

    async def to_arrow(self, **options: Unpack[ColumnArguments]) -> "pa.Table":
        """All records after `from_seq` as columns: seq, ts, node, tag, data, meta. Data and meta are JSON."""
        return await self._run(self._columns.read(options))

    async def to_pandas(self, **options: Unpack[ColumnArguments]) -> Any:
        """The columns of `to_arrow`, as a `pandas.DataFrame`."""
        needed("pandas")
        return (await self.to_arrow(**options)).to_pandas()

    async def to_polars(self, **options: Unpack[ColumnArguments]) -> Any:
        """The columns of `to_arrow`, as a `polars.DataFrame`."""
        return needed("polars").from_arrow(await self.to_arrow(**options))

    async def write_arrow(self, table: "pa.Table") -> Ack:
        """Append the rows of a table: a column `data` of JSON, and `tag`, `node`, `meta` if it has them.

        The server assigns `seq` and `ts`.
        """
        return await self._run(self._columns.write(table))

    # --- the topic itself -------------------------------------------------------------------------------

    async def create(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Create the topic, with the settings it was opened with and these; refused if it exists."""
        return await self._run(managing.create(self._session, self.name, {**self._settings, **settings}))

    async def describe(self) -> Answer:
        """The current state and settings of the topic."""
        return Answer(await self._run(managing.state(self._session, self.name)))

    async def configure(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Change these settings; the others stay."""
        return await self._run(managing.configure(self._session, self.name, dict(settings)))

    async def delete(
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
        return Answer(await self._run(managing.delete(self._session, self.name, selector)))

    async def drop(self, *, if_empty: bool = False, dry_run: bool = False) -> Answer:
        """Remove the topic and all its records."""
        return Answer(await self._run(managing.drop(self._session, self.name, if_empty, dry_run)))

    def ledger(self) -> AsyncIterator[Answer]:
        """The ranges of seqs that are gone, and why: `first_seq`, `last_seq`, `kind`."""
        return entries(self._io, managing.ledger(self._session, self.name))

    def cursors(self) -> AsyncIterator[Answer]:
        """The consumers whose position the server keeps, and how far behind the head they are."""
        return entries(self._io, managing.cursors(self._session, self.name))


class AsyncWriter(Generic[T]):
    """Collects records into batches. The end of the `async with` block writes the rest.

    Several tasks may share it.
    """

    def __init__(self, io: AsyncIO, batching: Batching[T]) -> None:
        self._io = io
        self._batching = batching
        self._add = batching.add
        if IS_ASYNC:
            self._aio_timer: asyncio.TimerHandle | None = None
            self._aio_lingering: asyncio.Task[None] | None = None

    async def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Add one record to the batch. Waits while the server is slower than its writers."""
        if IS_ASYNC:
            batching = self._batching
            # Other tasks may have filled the batch: it is sent first, so that order is kept.
            while batching.is_full:
                async with batching.turn:
                    if batching.is_full:
                        await self._io.run(batching.send())
            if self._add(data, tag, node, meta) and batching.is_due:
                async with batching.turn:
                    if batching.is_due:
                        await self._io.run(batching.send())
            elif self._aio_timer is None:
                loop = asyncio.get_running_loop()
                self._aio_timer = loop.call_later(max(batching.due_s, 0.0), self._aio_linger_is_over)
            return
        if self._add(data, tag, node, meta):
            async with self._batching.turn:
                if self._batching.is_due:
                    await self._io.run(self._batching.send())

    def _aio_linger_is_over(self) -> None:
        self._aio_timer = None
        if self._aio_lingering is None or self._aio_lingering.done():
            self._aio_lingering = asyncio.get_running_loop().create_task(self._aio_flush())

    def _aio_cancel_timer(self) -> None:
        if self._aio_timer is not None:
            self._aio_timer.cancel()

    async def _aio_flush(self) -> None:
        try:
            await self.flush()
        except TopicsError:
            pass  # the next call raises it

    async def flush(self) -> Ack | None:
        """Write all records given so far; returns the last acknowledgement."""
        async with self._batching.turn:
            return await self._io.run(self._batching.flush())

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return self._batching.count

    @property
    def last(self) -> Ack | None:
        """The last acknowledgement."""
        return self._batching.last

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Write the rest, also when the block ends with an error."""
        if IS_ASYNC:
            self._aio_cancel_timer()
        async with self._batching.turn:
            await self._io.run(self._batching.end(error))
        return False

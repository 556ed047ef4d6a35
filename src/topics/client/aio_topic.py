"""A topic, for programs on asyncio: writing, reading, columns, and the topic itself."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import msgspec

from topics.client.aio_writer import AsyncWriter
from topics.client.cursors.cursor import Cursor
from topics.client.encoding import Codec
from topics.client.operations import managing
from topics.client.operations.choice import Choice, OnLoss, milliseconds
from topics.client.operations.columns import Columns, needed
from topics.client.operations.pages import single_record
from topics.client.operations.reading import Ignored, Reading
from topics.client.operations.settings import TopicSettings, Wanted
from topics.client.operations.writing import Batching, Writing, decode_ack
from topics.client.records import Ack, Answer, Draft, Lost, Record, Restarted
from topics.client.wire.async_io import AsyncIO
from topics.client.wire.effects import Broken, Response
from topics.client.wire.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


async def entries(io: AsyncIO, pages: managing.Pages) -> AsyncIterator[Answer]:
    while (page := await io.run(pages.next_page())) is not None:
        for entry in page:
            yield entry


class AsyncTopic(Generic[T]):
    """One topic; `AsyncTopics.topic` makes it. `name` is its name."""

    def __init__(
        self, io: AsyncIO, session: Session, name: str, codec: Codec[T], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self._io = io
        self._run = io.run
        self._session = session
        self._codec = codec
        self._settings = settings
        wanted = Wanted(session, name, settings)
        self._writing = Writing(session, name, codec, wanted)
        self._before_headers = io.before_headers(self._writing.request(b""))
        self._ignored = Ignored()
        self._columns = Columns(session, name, wanted, self._ignored)

    @property
    def losses_ignored(self) -> int:
        """How many losses `ignore_loss` has passed over."""
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
        """One record. It is in the log when this returns."""
        writing, since = self._writing, monotonic()
        body, header_key = writing.single(data, tag, node, meta, idempotency_key)
        key = header_key or idempotency_key or ""
        asked = None
        if header_key and writing.wanted.is_there:
            asked = self._io.attempt(self._before_headers, header_key, body, since)
        if asked is None:
            return await self._run(writing.send(writing.request(body, header_key), key))
        connection, answer = asked
        came: Response | Broken | None
        try:
            came = heard = await answer
            if heard is not None and heard.status == 200:  # most are
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
        """One batch of data or `Draft`s: all of it is written, or nothing."""
        return await self._run(self._writing.write_many(items, idempotency_key))

    def writer(self, *, batch_bytes: int = 1 << 20, linger_ms: float = 5) -> AsyncWriter[T]:
        """Gathers records into batches, in a `with` block."""
        return AsyncWriter(self._io, Batching(self._writing, batch_bytes, linger_ms))

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
    ) -> AsyncIterator[Record[T]]:
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
    ) -> AsyncIterator[Record[T]]:
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
    ) -> AsyncIterator[Record[T] | Lost | Restarted]:
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

    async def _records(self, reading: Reading[T]) -> AsyncIterator[Record[T]]:
        run, cursor, memory = self._run, reading.cursor, reading.memory
        await run(reading.begin())
        self._io.cursors[id(cursor)] = cursor
        try:
            while (batch := await run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    await run(reading.meet(batch.loss))
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

    async def _items(self, reading: Reading[T]) -> AsyncIterator[Record[T] | Lost | Restarted]:
        run, cursor = self._run, reading.cursor
        await run(reading.begin())
        self._io.cursors[id(cursor)] = cursor
        try:
            while (batch := await run(reading.next_batch())) is not None:
                if batch.loss is not None:
                    yield batch.loss
                    await run(reading.pass_loss(batch.loss))
                for record in batch.records:
                    cursor._hand_out(record)
                    yield record
                    if reading.done(record):
                        await run(cursor._flush())
                await run(reading.batch_done(batch))
        finally:
            await run(reading.close(), ends=True)

    async def get(self, seq: int) -> Record[T]:
        """One record; `RecordGone` says why it is not there any more."""
        return single_record(self._codec, await self._run(managing.get(self._session, self.name, seq)))

    # --- as columns -------------------------------------------------------------------------------------

    async def to_arrow(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> "pa.Table":
        """Everything behind `from_seq` as columns: seq, ts, node, tag, data, meta. Data and meta are JSON."""
        return await self._run(self._columns.read(from_seq, on_loss, ignore_loss))

    async def to_pandas(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Any:
        """As `to_arrow`, as a `pandas.DataFrame`."""
        needed("pandas")
        table = await self._run(self._columns.read(from_seq, on_loss, ignore_loss))
        return table.to_pandas()

    async def to_polars(
        self,
        *,
        from_seq: int | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> Any:
        """As `to_arrow`, as a `polars.DataFrame`."""
        polars = needed("polars")
        return polars.from_arrow(await self._run(self._columns.read(from_seq, on_loss, ignore_loss)))

    async def write_arrow(self, table: "pa.Table") -> Ack:
        """Rows with a column `data` of JSON, and `tag`, `node`, `meta`; `seq` and `ts` are given anew."""
        return await self._run(self._columns.write(table))

    # --- the topic itself -------------------------------------------------------------------------------

    async def create(self, **settings: Unpack[TopicSettings]) -> Answer:
        """Make it, with the settings it was opened with and these. One that is there already is refused."""
        return await self._run(managing.create(self._session, self.name, {**self._settings, **settings}))

    async def describe(self) -> Answer:
        """Its state and its settings, as they are at this moment."""
        return await self._run(managing.describe(self._session, self.name))

    async def configure(self, **settings: Unpack[TopicSettings]) -> Answer:
        """These settings change, the rest stays."""
        return await self._run(managing.configure(self._session, self.name, dict(settings)))

    async def delete(
        self,
        *,
        before_seq: int | None = None,
        tag: str | None = None,
        seqs: list[int] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Remove records for good: below a seq, with a tag, or just these; several choices narrow it."""
        return await self._run(managing.delete(self._session, self.name, before_seq, tag, seqs, dry_run))

    async def drop(self, *, if_empty: bool = False, dry_run: bool = False) -> Answer:
        """Remove the topic with all that is in it."""
        return await self._run(managing.drop(self._session, self.name, if_empty, dry_run))

    def ledger(self) -> AsyncIterator[Answer]:
        """Which seqs are gone, and why: `first_seq`, `last_seq`, `kind`."""
        return entries(self._io, managing.ledger(self._session, self.name))

    def cursors(self) -> AsyncIterator[Answer]:
        """The consumers whose position the server keeps, and how far behind they are."""
        return entries(self._io, managing.cursors(self._session, self.name))

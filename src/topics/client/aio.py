"""The log for programs on asyncio: `AsyncTopics`.

The same names and arguments as in `sync`, the same operations, awaited.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from topics.client.aio_topic import AsyncTopic, entries
from topics.client.cursors.cursor import Cursor
from topics.client.encoding import codec_for
from topics.client.errors import TopicsError
from topics.client.operations import managing
from topics.client.operations.choice import OnLoss
from topics.client.operations.queueing import Holding, give_back
from topics.client.operations.settings import LogSettings
from topics.client.operations.watching import Watching, watching
from topics.client.records import Answer, Record
from topics.client.wire.address import address_of
from topics.client.wire.async_io import AsyncIO
from topics.client.wire.session import Session, refuse_odd_times

if TYPE_CHECKING:
    from topics.client.aio_jobs import AsyncQueue

T = TypeVar("T")
R = TypeVar("R")


class AsyncTopics:
    """A server. Threads and forked processes may share it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 10,
        retry_s: float = 30,
    ) -> None:
        refuse_odd_times(timeout_s, retry_s)
        address = address_of(url, api_key)
        self.url = address.url
        self._session = Session(address.url, retry_s)
        self._io = AsyncIO(address, timeout_s)
        self._holding = Holding()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what is open, and this client. Jobs that were claimed and not handed out are free again."""
        for cursor in tuple(self._io.cursors.values()):
            if cursor._session is not self._session:
                continue  # another client's by now
            # Committed in a loop that was left just now, or accepted behind one: else it would come again.
            with suppress(TopicsError):
                await self._io.run(cursor._flush(), ends=True)
        await self._io.run(give_back(self._session, self._holding), ends=True)
        await self._io.close()

    @overload
    def topic(
        self, name: str, *, type: None = None, **settings: Unpack[LogSettings]
    ) -> "AsyncTopic[Any]": ...
    @overload
    def topic(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "AsyncTopic[T]": ...
    def topic(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "AsyncTopic[Any]":
        """A topic, of which nothing is asked yet. Its data is JSON, or of this type.

        With settings, the first write makes the topic if it is missing; one that differs is `ConfigDiffers`.
        """
        return AsyncTopic(self._io, self._session, name, codec_for(type), dict(settings))

    @overload
    def queue(
        self, name: str, *, type: None = None, **settings: Unpack[LogSettings]
    ) -> "AsyncQueue[Any]": ...
    @overload
    def queue(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> "AsyncQueue[T]": ...
    def queue(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> "AsyncQueue[Any]":
        """A queue: the first push or claim makes it if it is missing."""
        from topics.client.aio_jobs import AsyncQueue

        return AsyncQueue(self._io, self._session, name, codec_for(type), dict(settings), self._holding)

    def list_topics(self, prefix: str = "") -> AsyncIterator[Answer]:
        """All topics whose names begin so, as the server lists them."""
        return entries(self._io, managing.topics(self._session, prefix))

    def routers(self) -> AsyncIterator[Answer]:
        """All routers."""
        return entries(self._io, managing.routers(self._session))

    def watch(
        self,
        cursors: Mapping[str, Cursor | None],
        *,
        idle_s: float | None = None,
        on_loss: OnLoss | None = None,
        ignore_loss: str | None = None,
    ) -> AsyncIterator[Record[Any]]:
        """Records of several topics as they come, each with its cursor; None begins at the head."""
        return self._watch(watching(self._session, cursors, idle_s, on_loss, ignore_loss))

    async def _watch(self, watched: Watching) -> AsyncIterator[Record[Any]]:
        run = self._io.run
        try:
            await run(watched.begin())
            self._io.cursors.update({id(cursor): cursor for cursor in watched.cursors})
            while (turn := await run(watched.next_turn())) is not None:
                reading, batch = turn
                if batch.loss is not None:
                    await run(reading.meet(batch.loss))
                for record in batch.records:
                    reading.cursor._hand_out(record)
                    yield record
                    if reading.done(record):
                        await run(reading.cursor._flush())
                await run(reading.batch_done(batch))
        finally:
            await run(watched.close(), ends=True)

    async def route(self, name: str, source: str, dest: str, *, tag: str | None = None) -> Answer:
        """Copy every record of `source` to `dest`, or those with such a tag."""
        return await self._io.run(managing.route(self._session, name, source, dest, tag))

    async def unroute(self, name: str) -> Answer:
        """End a router; what it has copied stays."""
        return await self._io.run(managing.unroute(self._session, name))

    async def purge(self) -> Answer:
        """Take the bytes of everything that was deleted from the disk, and wait until they are gone."""
        return await self._io.run(managing.purge(self._session))

    async def metrics(self) -> dict[str, Any]:
        """The server's metrics."""
        return await self._io.run(managing.metrics(self._session))

    async def info(self) -> dict[str, Any]:
        """Version, whether writes are on, room on the disk."""
        return await self._io.run(managing.info(self._session))

    async def wait_until_ready(self) -> None:
        """Until the server answers for its data, or `retry_s` is over."""
        await self._io.run(managing.ready(self._session))

"""The log for programs on asyncio: `AsyncTopics`.

`sync` is generated from this module by `scripts/make_blocking_sdk.py`: edit this one.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar, Unpack, overload

from topics.client.aio_jobs import AsyncQueue
from topics.client.aio_topic import AsyncTopic, entries
from topics.client.cursors import Cursor
from topics.client.encoding import codec_for
from topics.client.errors import TopicsError
from topics.client.operations import managing
from topics.client.operations.queueing import ClaimedJobs, give_back
from topics.client.operations.reading import OnLoss
from topics.client.operations.settings import LogSettings
from topics.client.operations.watching import Watching, watching
from topics.client.records import Answer, Record
from topics.client.wire.async_io import IS_ASYNC, AsyncIO
from topics.client.wire.requests import address_of
from topics.client.wire.session import Session, check_times

T = TypeVar("T")


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
        check_times(timeout_s, retry_s)
        address = address_of(url, api_key)
        io = AsyncIO(address, timeout_s)
        self._connect(Session(io, address.url, retry_s), io)

    @classmethod
    def _over(cls, session: Session, io: AsyncIO) -> Self:
        """Return a client with other retries or timeouts than the public ones."""
        client = cls.__new__(cls)
        client._connect(session, io)
        return client

    def _connect(self, session: Session, io: AsyncIO) -> None:
        self.url = session.url
        self._session = session
        self._io = io
        self._claimed_jobs = ClaimedJobs()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client and its connections. Jobs that were claimed and not handed out are free again."""
        if IS_ASYNC:
            await self._aio_store_cursors()
        await self._io.run(give_back(self._session, self._claimed_jobs), ends=True)
        await self._io.close()

    async def _aio_store_cursors(self) -> None:
        """Store positions that were committed, or losses accepted, after their reader ended."""
        for cursor in tuple(self._io.cursors.values()):
            if cursor._session is not self._session:
                continue  # another client uses it now
            with suppress(TopicsError):
                await self._io.run(cursor._flush(), ends=True)

    @overload
    def topic(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> AsyncTopic[Any]: ...
    @overload
    def topic(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> AsyncTopic[T]: ...
    def topic(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> AsyncTopic[Any]:
        """Return a topic, without asking the server. Its data is JSON, or of `type`.

        With settings, the first write creates the topic if it is missing; if it exists with other settings,
        the write raises `ConfigDiffers`.
        """
        return AsyncTopic(self._io, self._session, name, codec_for(type), dict(settings))

    @overload
    def queue(self, name: str, *, type: None = None, **settings: Unpack[LogSettings]) -> AsyncQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[T], **settings: Unpack[LogSettings]) -> AsyncQueue[T]: ...
    def queue(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002
        **settings: Unpack[LogSettings],
    ) -> AsyncQueue[Any]:
        """Return a queue. The first push or claim creates it if it is missing."""
        codec = codec_for(type)
        return AsyncQueue(self._io, self._session, name, codec, dict(settings), self._claimed_jobs)

    def list_topics(self, prefix: str = "") -> AsyncIterator[Answer]:
        """All topics whose names begin with `prefix`."""
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
        """Follow several topics, each from its cursor; a topic with None begins at its head.

        Ends after `idle_s` without a record.
        """
        return self._watch(watching(self._session, cursors, idle_s, on_loss, ignore_loss))

    async def _watch(self, watched: Watching) -> AsyncIterator[Record[Any]]:
        run = self._io.run
        try:
            await run(watched.begin())
            while (turn := await run(watched.next_turn())) is not None:
                reading, batch = turn
                if batch.loss is not None:
                    await run(reading.handle_loss(batch.loss))
                for record in batch.records:
                    reading.cursor._hand_out(record)
                    yield record
                    if reading.done(record):
                        await run(reading.cursor._flush())
                await run(reading.batch_done(batch))
        finally:
            await run(watched.close(), ends=True)

    async def route(self, name: str, source: str, dest: str, *, tag: str | None = None) -> Answer:
        """Create a router, which copies every record of `source`, or those with `tag`, to `dest`."""
        return Answer(await self._io.run(managing.route(self._session, name, source, dest, tag)))

    async def unroute(self, name: str) -> Answer:
        """Remove a router. The records that it copied stay."""
        return Answer(await self._io.run(managing.unroute(self._session, name)))

    async def purge(self) -> Answer:
        """Remove the bytes of all deleted records from the disk, and wait until they are gone."""
        return await self._io.run(managing.purge_all(self._session))

    async def metrics(self) -> dict[str, Any]:
        """The server's metrics."""
        return await self._io.run(managing.metrics(self._session))

    async def info(self) -> dict[str, Any]:
        """The server's version, whether it accepts writes, and the free space of its disk."""
        return await self._io.run(managing.info(self._session))

    async def wait_until_ready(self) -> None:
        """Wait until the server is ready for data, at most `retry_s`."""
        await self._io.run(managing.ready(self._session))

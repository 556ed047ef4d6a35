"""A writer for programs on asyncio: several tasks may share it, and the loop lets no record linger."""

import asyncio
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from topics.client.errors import TopicsError
from topics.client.operations.writing import Batching
from topics.client.records import Ack
from topics.client.wire.async_io import AsyncIO

T = TypeVar("T")


class AsyncWriter(Generic[T]):
    """Gathers records into batches. Leaving the `async with` block writes what is left."""

    def __init__(self, io: AsyncIO, batching: Batching[T]) -> None:
        self._io = io
        self._batching = batching
        # One batch at a time is handed over: order is kept, and writers wait for a server that is slower.
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: asyncio.Task[None] | None = None

    async def write(
        self,
        data: T,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Give it one record; it waits when the server is slower."""
        # Others have filled the batch: what is not handed over yet waits in front, in its order.
        while self._batching.is_full:
            async with self._turn:
                if self._batching.is_full:
                    await self._io.run(self._batching.send())
        if self._batching.add(data, tag, node, meta) and self._batching.is_due:
            async with self._turn:
                if self._batching.is_due:
                    await self._io.run(self._batching.send())
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(self._batching.due_s, 0.0), self._linger_is_over)

    def _linger_is_over(self) -> None:
        self._timer = None
        if self._lingering is None or self._lingering.done():
            self._lingering = asyncio.get_running_loop().create_task(self._send_what_lingers())

    async def _send_what_lingers(self) -> None:
        try:
            await self.flush()
        except TopicsError:
            pass  # the next call raises it

    async def flush(self) -> Ack | None:
        """Everything given so far is in the log."""
        async with self._turn:
            return await self._io.run(self._batching.flush())

    @property
    def count(self) -> int:
        """Records that are acknowledged."""
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
        """What was given is written, also when the block ends with an error of its own."""
        if self._timer is not None:
            self._timer.cancel()
        async with self._turn:
            await self._io.run(self._batching.end(error))
        return False

"""Queues for programs on asyncio: jobs, heartbeats and workers, with tasks where `jobs` has threads."""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from topics.client.aio_topic import AsyncTopic
from topics.client.encoding import Codec
from topics.client.errors import InvalidData, LeaseLost, NoJob, TopicsError
from topics.client.operations.choice import OnLoss
from topics.client.operations.queueing import HEARTBEATS, Claiming, Holding, Lease, settlement
from topics.client.wire.async_io import AsyncIO
from topics.client.wire.session import Session
from topics.values import MAX_CLAIM

T = TypeVar("T")
# How long a worker waits for a job before it looks whether it is to stop.
WORKER_WAIT_S = 1.0
_log = logging.getLogger("topics")


class AsyncJob(Generic[T]):
    """A job under lease: this worker's until it says what became of it, or the lease ends."""

    def __init__(self, io: AsyncIO, claiming: Claiming[T], lease: Lease, data: T) -> None:
        self._io = io
        self._claiming = claiming
        self._lease = lease
        row = lease.row
        self.seq = row.seq
        self.data = data
        self.tag = row.tag
        self.meta = row.meta
        self.deliveries = row.deliveries
        self.lease_id = row.lease_id
        self._is_settled = False

    async def ack(self) -> None:
        """It is done, and gone from the queue."""
        self._is_settled = True
        await self._io.run(self._claiming.settle("ack", self._lease))

    async def nack(self, error: BaseException | str | None = None, delay_ms: int = 0) -> None:
        """Back into the queue, for another try after `delay_ms`."""
        self._is_settled = True
        await self._io.run(self._claiming.settle("nack", self._lease, settlement(error, delay_ms)))

    async def extend(self, lease_ms: int) -> None:
        """This worker's for so long from now on."""
        await self._io.run(self._claiming.settle("extend", self._lease, {"lease_ms": lease_ms}))

    def __repr__(self) -> str:
        return f"AsyncJob(seq={self.seq}, data={self.data!r}, deliveries={self.deliveries})"


class AsyncQueue(AsyncTopic[T]):
    """A topic of jobs, with everything that a topic has; `AsyncTopics.queue` makes it."""

    def __init__(
        self,
        io: AsyncIO,
        session: Session,
        name: str,
        codec: Codec[T],
        settings: dict[str, Any],
        holding: Holding,
    ) -> None:
        super().__init__(io, session, name, codec, {**settings, "type": "queue"})
        self._claiming = Claiming(session, name, codec, self._writing.wanted, holding)

    push = AsyncTopic.write

    async def claim(
        self,
        max: int = 1,  # noqa: A002
        *,
        lease_ms: int | None = None,
        wait_s: float = 0,
        on_loss: OnLoss | None = None,
    ) -> list[AsyncJob[T]]:
        """Up to `max` jobs, each of them this client's for `lease_ms`; none if none came within `wait_s`."""
        claimed = await self._run(self._claiming.claim(max, lease_ms, wait_s, on_loss))
        return [AsyncJob(self._io, self._claiming, lease, data) for lease, data in claimed]

    @asynccontextmanager
    async def job(
        self, *, wait_s: float = 0, lease_ms: int | None = None, on_loss: OnLoss | None = None
    ) -> AsyncIterator[AsyncJob[T]]:
        """One job: finished when the block ends well, given back with the error when it does not."""
        jobs = await self.claim(1, lease_ms=lease_ms, wait_s=wait_s, on_loss=on_loss)
        if not jobs:
            raise NoJob(f"no job came in {self.name} within {wait_s:g} s")
        async with working(jobs[0]):
            yield jobs[0]

    def worker(
        self,
        handler: Callable[[AsyncJob[T]], Any],
        *,
        concurrency: int = 4,
        lease_ms: int | None = None,
        on_loss: OnLoss | None = None,
    ) -> "AsyncWorker[T]":
        """Runs `handler` for each job; see `AsyncWorker.run`."""
        return AsyncWorker(self, handler, concurrency, lease_ms, on_loss)


@asynccontextmanager
async def working(job: AsyncJob[T]) -> AsyncIterator[None]:
    """Renews the lease meanwhile; then ack or nack. A lease that is lost cancels the body."""
    heartbeat = _Heartbeat(job)
    try:
        yield
    except BaseException as error:
        await heartbeat.stop()
        if heartbeat.has_cancelled(error):
            raise LeaseLost(job._claiming.topic, job.seq) from None
        if not heartbeat.is_lost and not job._is_settled:
            try:
                await job.nack(error)
            except TopicsError:
                pass  # the lease ends by itself; the error of the job is what matters
        raise
    await heartbeat.stop()
    if job._is_settled:
        return
    if heartbeat.is_lost:
        raise LeaseLost(job._claiming.topic, job.seq)
    await job.ack()


class _Heartbeat:
    def __init__(self, job: AsyncJob[Any]) -> None:
        self._job = job
        self.is_lost = False
        self._body = asyncio.current_task()
        self._task = asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        job = self._job
        lease_s = job._lease.lease_s
        more = {"lease_ms": int(lease_s * 1000)}
        # A job that was kept back for a while has less of its lease left.
        wait_s = min(lease_s, max(job._lease.ends - time.monotonic(), 0.0)) / HEARTBEATS
        while True:
            await asyncio.sleep(wait_s)
            if job._is_settled:
                return
            wait_s = lease_s / HEARTBEATS
            try:
                await job._io.run(job._claiming.settle("extend", job._lease, more, patience_s=wait_s))
            except LeaseLost:
                if not job._is_settled:
                    self.is_lost = True
                    if self._body is not None:
                        self._body.cancel()
                return
            except TopicsError:
                pass  # tried again; should the lease end meanwhile, the next time says so

    def has_cancelled(self, error: BaseException) -> bool:
        """Whether the body ended because of its lease, and of nothing else."""
        if not self.is_lost or not isinstance(error, asyncio.CancelledError):
            return False
        return self._body is None or self._body.uncancel() <= 0

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class AsyncWorker(Generic[T]):
    """Runs a handler for each job, so many at once, until it is stopped."""

    def __init__(
        self,
        queue: AsyncQueue[T],
        handler: Callable[[AsyncJob[T]], Any],
        concurrency: int,
        lease_ms: int | None,
        on_loss: OnLoss | None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency is 1 or more")
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._on_loss = on_loss
        self._is_stopped = False
        self._turn = asyncio.Lock()
        self._waiting = 0  # for their turn
        self._claimed: list[AsyncJob[T]] = []

    async def run(self) -> None:
        """Returns after `stop()`; raises what stopped it otherwise, such as a loss without `on_loss`.

        What the handler raises stops nothing: the job goes back with it, for another try.
        """
        tasks = [asyncio.ensure_future(self._work()) for _ in range(self._concurrency)]
        try:
            await asyncio.gather(*tasks)
        finally:
            # After a failure of one, or when run() itself is cancelled.
            self.stop()
            await asyncio.wait(tasks)
            self._queue._claiming.keep([job._lease for job in self._claimed])

    def stop(self) -> None:
        """Jobs under way are finished; no further one is claimed."""
        self._is_stopped = True

    async def _work(self) -> None:
        while (job := await self._next_job()) is not None:
            await self._handle(job)

    async def _next_job(self) -> AsyncJob[T] | None:
        """One of the tasks claims for all that wait: none gets a job while another is told of a loss."""
        self._waiting += 1
        async with self._turn:
            self._waiting -= 1
            while not self._claimed and not self._is_stopped:
                try:
                    self._claimed += await self._queue.claim(
                        min(self._waiting + 1, MAX_CLAIM),
                        lease_ms=self._lease_ms,
                        wait_s=WORKER_WAIT_S,
                        on_loss=self._on_loss,
                    )
                except InvalidData as error:
                    _log.warning("%s: given back", error)
                except BaseException:
                    self.stop()
                    raise
            return self._claimed.pop(0) if self._claimed else None

    async def _handle(self, job: AsyncJob[T]) -> None:
        try:
            async with working(job):
                result = self._handler(job)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            _log.warning("job %d of %s: %s: %s", job.seq, self._queue.name, type(error).__name__, error)

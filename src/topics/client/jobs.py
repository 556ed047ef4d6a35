# Generated from aio_jobs.py by scripts/make_blocking_sdk.py: do not edit.
"""Queues for programs that block: `Queue`, `Job` and `Worker`."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from topics.client.encoding import Codec
from topics.client.errors import InvalidData, LeaseLost, NoJob, TopicsError
from topics.client.operations.queueing import ClaimedJobs, Claiming, Lease, settlement
from topics.client.operations.reading import OnLoss
from topics.client.topic import Topic
from topics.client.wire.blocking import BackgroundThread, Blocking, run_in_threads
from topics.client.wire.session import Session
from topics.core import MAX_CLAIM

T = TypeVar("T")
# How long one claim of a worker waits. `stop` takes effect after it.
WORKER_WAIT_S = 1.0
_log = logging.getLogger("topics")


class Job(Generic[T]):
    """A leased job: it belongs to this worker until it is settled, or until the lease ends.

    It has `seq`, `data`, `tag`, `meta`, `deliveries` and `lease_id`.
    """

    def __init__(self, io: Blocking, claiming: Claiming[T], lease: Lease, data: T) -> None:
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

    def ack(self) -> None:
        """Finish the job and remove it from the queue."""
        self._is_settled = True
        self._io.run(self._claiming.settle("ack", self._lease))

    def nack(self, error: BaseException | str | None = None, delay_ms: int = 0) -> None:
        """Return the job to the queue, for another try after `delay_ms`."""
        self._is_settled = True
        self._io.run(self._claiming.settle("nack", self._lease, settlement(error, delay_ms)))

    def extend(self, lease_ms: int) -> None:
        """Renew the lease: it ends `lease_ms` from now."""
        self._io.run(self._claiming.settle("extend", self._lease, {"lease_ms": lease_ms}))

    def __repr__(self) -> str:
        return f"Job(seq={self.seq}, data={self.data!r}, deliveries={self.deliveries})"


class Queue(Topic[T]):
    """A topic of jobs, with all methods of a topic; `Topics.queue` returns it. `push` is `write`."""

    def __init__(
        self,
        io: Blocking,
        session: Session,
        name: str,
        codec: Codec[T],
        settings: dict[str, Any],
        claimed_jobs: ClaimedJobs,
    ) -> None:
        super().__init__(io, session, name, codec, {**settings, "type": "queue"})
        self._claiming = Claiming(session, name, codec, self._writing.wanted, claimed_jobs)

    push = Topic.write

    def claim(
        self,
        max: int = 1,  # noqa: A002
        *,
        lease_ms: int | None = None,
        wait_s: float = 0,
        on_loss: OnLoss | None = None,
    ) -> list[Job[T]]:
        """Claim up to `max` jobs for `lease_ms`; an empty list if none came within `wait_s`."""
        claimed = self._run(self._claiming.claim(max, lease_ms, wait_s, on_loss))
        return [Job(self._io, self._claiming, lease, data) for lease, data in claimed]

    @contextmanager
    def job(
        self, *, wait_s: float = 0, lease_ms: int | None = None, on_loss: OnLoss | None = None
    ) -> Iterator[Job[T]]:
        """Claim one job for a block. The end of the block acknowledges it; an error returns it to the queue.

        The lease is renewed during the block. `NoJob`: none came within `wait_s`.
        """
        jobs = self.claim(1, lease_ms=lease_ms, wait_s=wait_s, on_loss=on_loss)
        if not jobs:
            raise NoJob(f"no job came in {self.name} within {wait_s:g} s")
        with _settled_after(jobs[0]):
            yield jobs[0]

    def worker(
        self,
        handler: Callable[[Job[T]], Any],
        *,
        concurrency: int = 4,
        lease_ms: int | None = None,
        on_loss: OnLoss | None = None,
    ) -> "Worker[T]":
        """Return a worker, which calls `handler` for each job; see `Worker.run`."""
        return Worker(self, handler, concurrency, lease_ms, on_loss)


@contextmanager
def _settled_after(job: Job[T]) -> Iterator[None]:
    """Renew the lease during a block, then settle the job. A lost lease cancels a block in a task."""
    claiming = job._claiming
    renewal = BackgroundThread(job._io, lambda: claiming.renew(job._lease, lambda: job._is_settled))
    try:
        yield
    except BaseException as error:
        renewal.stop()
        if renewal.has_cancelled(error):
            raise LeaseLost(claiming.topic, job.seq) from None
        if not renewal.has_failed and not job._is_settled:
            try:
                job.nack(error)
            except TopicsError:
                pass  # the lease ends by itself; the job's own error is raised
        raise
    renewal.stop()
    if job._is_settled:
        return
    if renewal.has_failed:
        raise LeaseLost(claiming.topic, job.seq)
    job.ack()


class Worker(Generic[T]):
    """Calls a handler for each job, up to `concurrency` at the same time, until it is stopped."""

    def __init__(
        self,
        queue: Queue[T],
        handler: Callable[[Job[T]], Any],
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
        self._turn = threading.Lock()
        # One entry for each that waits for its turn. Threads append and pop without a lock.
        self._waiting: deque[None] = deque()
        self._claimed: list[Job[T]] = []

    def run(self) -> None:
        """Handle jobs until `stop()`, or until something other than a handler fails, such as a claim.

        A loss without `on_loss` is such a failure. If the handler raises, its job returns to the queue with
        the error, and the worker continues.
        """
        try:
            run_in_threads(self._work, self._concurrency, self.stop)
        finally:
            self._queue._claiming.keep([job._lease for job in self._claimed])

    def stop(self) -> None:
        """Claim no further job. `run` returns when the jobs under way are finished."""
        self._is_stopped = True

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            self._handle(job)

    def _next_job(self) -> Job[T] | None:
        """Claim jobs for all that wait, so that none gets a job while another learns of a loss."""
        self._waiting.append(None)
        with self._turn:
            self._waiting.pop()
            while not self._claimed and not self._is_stopped:
                try:
                    self._claimed += self._queue.claim(
                        min(len(self._waiting) + 1, MAX_CLAIM),
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

    def _handle(self, job: Job[T]) -> None:
        try:
            with _settled_after(job):
                io = self._queue._io
                io.run(io.call(self._handler, job), ends=True)
        except Exception as error:
            _log.warning("job %d of %s: %s: %s", job.seq, self._queue.name, type(error).__name__, error)

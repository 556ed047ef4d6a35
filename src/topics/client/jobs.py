"""Queues for programs that block: jobs, heartbeats and workers. Only `job` and `worker` make threads."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from topics.client.encoding import Codec
from topics.client.errors import InvalidData, LeaseLost, NoJob, TopicsError
from topics.client.operations.choice import OnLoss
from topics.client.operations.queueing import HEARTBEATS, Claiming, Holding, Lease, settlement
from topics.client.topic import Topic
from topics.client.wire.blocking import Blocking
from topics.client.wire.session import Session
from topics.values import MAX_CLAIM

T = TypeVar("T")
# How long a worker waits for a job before it looks whether it is to stop.
WORKER_WAIT_S = 1.0
_log = logging.getLogger("topics")


class Job(Generic[T]):
    """A job under lease: this worker's until it says what became of it, or the lease ends.

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
        """It is done, and gone from the queue."""
        self._is_settled = True
        self._io.run(self._claiming.settle("ack", self._lease))

    def nack(self, error: BaseException | str | None = None, delay_ms: int = 0) -> None:
        """Back into the queue, for another try after `delay_ms`."""
        self._is_settled = True
        self._io.run(self._claiming.settle("nack", self._lease, settlement(error, delay_ms)))

    def extend(self, lease_ms: int) -> None:
        """This worker's for so long from now on."""
        self._io.run(self._claiming.settle("extend", self._lease, {"lease_ms": lease_ms}))

    def __repr__(self) -> str:
        return f"Job(seq={self.seq}, data={self.data!r}, deliveries={self.deliveries})"


class Queue(Topic[T]):
    """A topic of jobs, with everything that a topic has; `Topics.queue` makes it. `push` is `write`."""

    def __init__(
        self,
        io: Blocking,
        session: Session,
        name: str,
        codec: Codec[T],
        settings: dict[str, Any],
        holding: Holding,
    ) -> None:
        super().__init__(io, session, name, codec, {**settings, "type": "queue"})
        self._claiming = Claiming(session, name, codec, self._writing.wanted, holding)

    push = Topic.write

    def claim(
        self,
        max: int = 1,  # noqa: A002
        *,
        lease_ms: int | None = None,
        wait_s: float = 0,
        on_loss: OnLoss | None = None,
    ) -> list[Job[T]]:
        """Up to `max` jobs, each of them this client's for `lease_ms`; none if none came within `wait_s`."""
        claimed = self._run(self._claiming.claim(max, lease_ms, wait_s, on_loss))
        return [Job(self._io, self._claiming, lease, data) for lease, data in claimed]

    @contextmanager
    def job(
        self, *, wait_s: float = 0, lease_ms: int | None = None, on_loss: OnLoss | None = None
    ) -> Iterator[Job[T]]:
        """One job: finished when the block ends well, given back with the error when it does not."""
        jobs = self.claim(1, lease_ms=lease_ms, wait_s=wait_s, on_loss=on_loss)
        if not jobs:
            raise NoJob(f"no job came in {self.name} within {wait_s:g} s")
        with working(jobs[0]):
            yield jobs[0]

    def worker(
        self,
        handler: Callable[[Job[T]], Any],
        *,
        concurrency: int = 4,
        lease_ms: int | None = None,
        on_loss: OnLoss | None = None,
    ) -> "Worker[T]":
        """Runs `handler` for each job; see `Worker.run`."""
        return Worker(self, handler, concurrency, lease_ms, on_loss)


@contextmanager
def working(job: Job[T]) -> Iterator[None]:
    """Renews the lease meanwhile; then ack or nack. A lease that was lost is told at the end."""
    heartbeat = _Heartbeat(job)
    try:
        yield
    except BaseException as error:
        heartbeat.stop()
        if not heartbeat.is_lost and not job._is_settled:
            try:
                job.nack(error)
            except TopicsError:
                pass  # the lease ends by itself; the error of the job is what matters
        raise
    heartbeat.stop()
    if job._is_settled:
        return
    if heartbeat.is_lost:
        raise LeaseLost(job._claiming.topic, job.seq)
    job.ack()


class _Heartbeat(threading.Thread):
    def __init__(self, job: Job[Any]) -> None:
        super().__init__(name=f"topics-lease-{job.seq}", daemon=True)
        self._job = job
        self._over = threading.Event()
        self.is_lost = False
        self.start()

    def run(self) -> None:
        job = self._job
        lease_s = job._lease.lease_s
        more = {"lease_ms": int(lease_s * 1000)}
        # A job that was kept back for a while has less of its lease left.
        wait_s = min(lease_s, max(job._lease.ends - time.monotonic(), 0.0)) / HEARTBEATS
        while not self._over.wait(wait_s) and not job._is_settled:
            wait_s = lease_s / HEARTBEATS
            try:
                job._io.run(job._claiming.settle("extend", job._lease, more, patience_s=wait_s))
            except LeaseLost:
                self.is_lost = not job._is_settled
                return
            except TopicsError:
                pass  # tried again; should the lease end meanwhile, the next time says so

    def stop(self) -> None:
        self._over.set()
        self.join()


class Worker(Generic[T]):
    """Runs a handler for each job, so many at once, until it is stopped."""

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
        self._is_stopped = threading.Event()
        self._failure: BaseException | None = None
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0  # for their turn
        self._claimed: list[Job[T]] = []

    def run(self) -> None:
        """Returns after `stop()`; raises what stopped it otherwise, such as a loss without `on_loss`.

        What the handler raises stops nothing: the job goes back with it, for another try.
        """
        threads = [
            threading.Thread(target=self._work, name=f"topics-worker-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            self._is_stopped.wait()
        finally:
            self.stop()
            for thread in threads:
                thread.join()
            self._queue._claiming.keep([job._lease for job in self._claimed])
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Jobs under way are finished; no further one is claimed."""
        self._is_stopped.set()

    def _work(self) -> None:
        try:
            while (job := self._next_job()) is not None:
                self._handle(job)
        except BaseException as error:
            self._failure = self._failure or error
            self.stop()

    def _next_job(self) -> Job[T] | None:
        """One of the threads claims for all that wait: none gets a job while another is told of a loss."""
        with self._counting:
            self._waiting += 1
        with self._turn:
            with self._counting:
                self._waiting -= 1
            while not self._claimed and not self._is_stopped.is_set():
                try:
                    self._claimed += self._queue.claim(
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

    def _handle(self, job: Job[T]) -> None:
        try:
            with working(job):
                self._handler(job)
        except Exception as error:
            _log.warning("job %d of %s: %s: %s", job.seq, self._queue.name, type(error).__name__, error)

"""The desk of a queue: all who wait there for jobs, streams and single claims alike.

Whenever a job or a place may have become free, those with room ask together. Jobs that were lost are told to
one of them at once, whether or not there are others to hand out.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from topics.flow.queues.claims import Claim
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import JobQueue
from topics.http.routes.service import Service

# Leases and delays end without a request: desks look for that, well within a quarter of a second.
LOOK_S = 0.1


class Worker(Protocol):
    """One that waits. It leaves the desk itself, when it has what it came for or its client has gone."""

    # Waiting here counts as reading the topic.
    is_reader: bool

    @property
    def room(self) -> int:
        """How many jobs it may get now."""

    @property
    def hears(self) -> bool:
        """What is written to it now has a chance to be read."""

    def ask(self) -> Claim: ...

    def tell(self, notice: Notice) -> None:
        """Jobs were lost."""

    def queue_gone(self) -> None: ...

    def shut_down(self) -> None: ...


class Desk:
    def __init__(self, service: Service, queue: JobQueue) -> None:
        self.queue = queue
        self.workers: deque[Worker] = deque()
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._later = self._loop.call_later(LOOK_S, self._look)
        queue.listeners.append(self.wake)
        queue.topic.listeners.append(self.wake)

    def add(self, worker: Worker) -> None:
        self.workers.append(worker)
        self.wake()

    def wake(self) -> None:
        """Many wakes in one turn of the loop lead to one round."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self._round)

    def _look(self) -> None:
        self._later = self._loop.call_later(LOOK_S, self._look)
        self._round()

    def _round(self) -> None:
        self._soon = None
        queue, topic = self.queue, self.queue.topic
        if queue.is_gone:
            for worker in tuple(self.workers):
                worker.queue_gone()
            return
        self._service.pull(topic)
        queue.refresh()
        if any(worker.is_reader for worker in self.workers):
            queue.engine.note_read(topic)
        self._tell_losses()
        claims: list[Claim] = []
        for worker in self.workers:
            # More claimers than jobs would only come away empty.
            if len(claims) >= queue.ready:
                break
            if worker.room > 0:
                claims.append(worker.ask())
        # Another worker is first next time, or a trickle of jobs would all go to this one.
        self.workers.rotate(-1)
        if topic.config.claim_jitter_ms:
            for claim in claims:
                queue.claim(claim)
        elif claims:
            queue.serve(claims)

    def _tell_losses(self) -> None:
        listener = next((worker for worker in self.workers if worker.hears), None)
        if listener is not None:
            notice = self.queue.notice()
            if notice is not None:
                listener.tell(notice)

    def close(self) -> None:
        self._later.cancel()
        if self._soon is not None:
            self._soon.cancel()
        self.queue.listeners.remove(self.wake)
        self.queue.topic.listeners.remove(self.wake)


class Desks:
    """All desks at which there is a worker."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._by_queue: dict[JobQueue, Desk] = {}

    def __len__(self) -> int:
        return len(self._by_queue)

    def __iter__(self) -> Iterator[Desk]:
        return iter(self._by_queue.values())

    def at(self, queue: JobQueue) -> Desk:
        """For a worker that is about to be added."""
        desk = self._by_queue.get(queue)
        if desk is None:
            desk = self._by_queue[queue] = Desk(self._service, queue)
        return desk

    def leave(self, desk: Desk, worker: Worker) -> None:
        if worker in desk.workers:
            desk.workers.remove(worker)
        if not desk.workers and self._by_queue.get(desk.queue) is desk:
            desk.close()
            del self._by_queue[desk.queue]

    def shut_down(self) -> None:
        """The server stops."""
        for desk in tuple(self._by_queue.values()):
            for worker in tuple(desk.workers):
                worker.shut_down()

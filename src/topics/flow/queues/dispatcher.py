"""The dispatcher of a queue: every claim passes here, whether it is served at once, in a window, or waits.

    claim ─▶ at once, or at the end of the window that the first claim opens ─▶ JobQueue.serve
    worker that waits ─▶ wake (a job may be ready) ─▶ round: those with room claim together

A round also tells one worker about lost jobs, whether or not there are jobs to hand out.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from topics.flow.queues.claims import Claim
from topics.flow.queues.losses import Notice
from topics.log import Topic

if TYPE_CHECKING:
    from topics.flow.queues.queue import JobQueue

# Leases and delays end without a request: the dispatcher looks for that while workers wait.
POLL_S = 0.1


class WaitingWorker(Protocol):
    """A work stream or a claim that waits for jobs. It removes itself from the dispatcher when it is done."""

    # Waiting counts as reading the topic.
    is_reader: bool

    @property
    def room(self) -> int:
        """How many jobs it may get now."""

    @property
    def can_receive(self) -> bool:
        """Whether the client is likely to read what is written now."""

    def ask(self) -> Claim: ...

    def tell(self, notice: Notice) -> None:
        """Report that jobs were lost."""

    def queue_gone(self) -> None: ...

    def shut_down(self) -> None: ...


class JobDispatcher:
    __slots__ = ("_pull", "_queue", "_round_handle", "_timer", "window", "workers")

    def __init__(self, queue: "JobQueue", pull: Callable[[Topic], None]) -> None:
        """`pull` makes the copies that routers owe to the queue."""
        self._queue = queue
        self._pull = pull
        # The worker that asks first in the next round is the first.
        self.workers: list[WaitingWorker] = []
        # Claims that gather until the window closes.
        self.window: list[Claim] = []
        self._round_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- claims -----------------------------------------------------------------------------------------

    @property
    def has_window(self) -> bool:
        return self._queue.topic.config.claim_jitter_ms > 0

    def claim(self, claim: Claim) -> None:
        """Serve the claim at once, or together with all claims of the window that the first one opens."""
        window_ms = self._queue.topic.config.claim_jitter_ms
        if not window_ms:
            self._queue.serve([claim])
            return
        self.window.append(claim)
        if len(self.window) == 1:
            asyncio.get_running_loop().call_later(window_ms / 1000, self.close_window)

    def close_window(self) -> None:
        claims = [claim for claim in self.window if not claim.has_left]
        self.window = []
        if claims:
            self._queue.serve(claims)

    # --- workers that wait ------------------------------------------------------------------------------

    def add(self, worker: WaitingWorker) -> None:
        self.workers.append(worker)
        if len(self.workers) == 1:
            self._queue.topic.listeners.append(self.wake)
            self._poll_later()
        self.wake()

    def remove(self, worker: WaitingWorker) -> None:
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        if self.workers:
            return
        self._queue.topic.listeners.remove(self.wake)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round_handle is not None:
            self._round_handle.cancel()
            self._round_handle = None

    def wake(self) -> None:
        """A job or a place may have become free: many wakes in one turn of the loop lead to one round."""
        if self.workers and self._round_handle is None:
            self._round_handle = asyncio.get_running_loop().call_soon(self._round)

    def _poll_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        self._poll_later()
        self._round()

    def _round(self) -> None:
        self._round_handle = None
        queue, topic = self._queue, self._queue.topic
        if queue.is_gone:
            for worker in tuple(self.workers):
                worker.queue_gone()
            return
        self._pull(topic)
        queue.refresh()
        if any(worker.is_reader for worker in self.workers):
            queue.engine.note_read(topic)
        self._tell_losses()
        if not self.workers:
            return
        claims: list[Claim] = []
        for worker in self.workers:
            # More claims than jobs would only come back empty.
            if len(claims) >= queue.ready:
                break
            if worker.room > 0:
                claims.append(worker.ask())
        # Another worker is first next time, or a trickle of jobs would all go to this one.
        self.workers.append(self.workers.pop(0))
        if self.has_window:
            for claim in claims:
                self.claim(claim)
        elif claims:
            queue.serve(claims)

    def _tell_losses(self) -> None:
        listener = next((worker for worker in self.workers if worker.can_receive), None)
        if listener is not None:
            notice = self._queue.notice()
            if notice is not None:
                listener.tell(notice)

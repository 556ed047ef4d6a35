"""Claims: when each is served, which jobs it gets, and which jobs were delivered too often.

    claim ─▶ at once, or at the end of the window that the first claim opens ─▶ JobQueue.serve
    worker that waits ─▶ wake (a job may be ready) ─▶ round: those with room claim together
    serve ─▶ take_jobs ─▶ deal (grant leases in rotation)

A round also tells one worker about lost jobs, whether or not there are jobs to hand out.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from topics.core import MAX_READ_BYTES
from topics.flow.queues.dead_letters import MAX_MOVES
from topics.flow.queues.jobs import StoredJob, live_from, read_jobs, with_leases
from topics.flow.queues.leases import Holder, JobLease, LeaseTable
from topics.flow.queues.losses import Notice
from topics.log import Fail, Topic

if TYPE_CHECKING:
    from topics.flow.queues.queue import JobQueue


# Bytes that a claim may carry: as many as any read, so that one worker does not hold up the others.
MAX_CLAIM_BYTES = MAX_READ_BYTES


@dataclass(slots=True, eq=False)
class Claim:
    """A worker's request for jobs, and the jobs that it got. `done` gets the claim itself."""

    node: str
    wanted: int
    lease_ms: int
    done: "Callable[[Claim], None]"
    fail: Fail
    holder: Holder | None = None
    # Each job's seq and text; the text lacks its opening brace.
    jobs: list[tuple[int, bytes]] = field(default_factory=list)
    # Lost jobs that this worker has to be told of. The queue has to hear whether it was.
    notice: Notice | None = None
    # The worker went away before it was served.
    has_left: bool = False

    def leave(self) -> None:
        self.has_left = True


def take_jobs(topic: Topic, table: LeaseTable, wanted: int, max_bytes: int) -> list[StoredJob]:
    """Take jobs that came back, lowest first, then jobs that were never delivered."""
    config = topic.config
    limit = config.max_deliveries if config.dead_letter is not None else 0
    taken: list[int] = []
    overdue = 0
    while len(taken) < wanted and overdue < MAX_MOVES:
        seq = table.take_returned()
        if seq is None:
            break
        if limit and table.deliveries.get(seq, 0) >= limit:
            table.set_overdue(seq)
            overdue += 1
        else:
            taken.append(seq)
    if len(taken) < wanted and overdue < MAX_MOVES:
        missing = wanted - len(taken)
        fresh = live_from(topic, table.next_fresh, missing)
        table.next_fresh = fresh[-1] + 1 if len(fresh) == missing else topic.head + 1
        taken += fresh
    jobs = read_jobs(topic, taken, max_bytes) if taken else []
    # Jobs that did not fit wait for the next claim; so do jobs that turned out to be lost, until the table
    # forgets them.
    if len(jobs) < len(taken):
        read = {job.seq for job in jobs}
        for seq in taken:
            if seq not in read:
                table.give_back(seq)
    return jobs


def deal(
    table: LeaseTable,
    jobs: list[StoredJob],
    claims: list[Claim],
    now: int,
    shift: int,
    next_lease_ids: Callable[[int], int],
) -> list[JobLease]:
    """Grant one job to each claim in turn, until all have enough or no job is left.

    `shift`: from the table's time to Unix time. `next_lease_ids` reserves ids and returns the first.
    """
    granted: list[JobLease] = []
    shares = [jobs] if len(claims) == 1 else _shares(jobs, claims)
    for claim, share in zip(claims, shares, strict=True):
        seqs = [job.seq for job in share]
        first_id, deadline = next_lease_ids(len(seqs)), now + claim.lease_ms
        granted += table.grant(seqs, first_id, claim.node, deadline, claim.holder)
        texts = with_leases(share, first_id, deadline + shift, table.deliveries)
        claim.jobs = list(zip(seqs, texts, strict=True))
    return granted


def _shares(jobs: list[StoredJob], claims: list[Claim]) -> list[list[StoredJob]]:
    shares: list[list[StoredJob]] = [[] for _ in claims]
    turns = deque(zip(shares, claims, strict=True))
    for job in jobs:
        share, claim = turns.popleft()
        share.append(job)
        if len(share) < claim.wanted:
            turns.append((share, claim))
    return shares


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

"""Choosing jobs for those who ask: which come first, which have been delivered too often, who gets which."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.flow.queues.dead_letters import MAX_MOVES
from topics.flow.queues.jobs import Job, live_from, read_jobs
from topics.flow.queues.leases import Holder, Lease, LeaseTable
from topics.log.write.operation import Fail
from topics.values.settings import MAX_READ_BYTES

if TYPE_CHECKING:
    from topics.flow.queues.queue import JobQueue

# What a claim may carry: like any read, so that one greedy worker does not hold up the others.
MAX_CLAIM_BYTES = MAX_READ_BYTES


class Claim:
    """Somebody asking for jobs. `jobs` holds their text once it is answered."""

    __slots__ = ("answer", "fail", "holder", "jobs", "lease_ms", "left", "node", "wanted")

    def __init__(
        self,
        node: str,
        wanted: int,
        lease_ms: int,
        answer: Callable[[Claim], None],
        fail: Fail,
        holder: Holder | None = None,
    ) -> None:
        self.node = node
        self.wanted = wanted
        self.lease_ms = lease_ms
        self.answer = answer
        self.fail = fail
        self.holder = holder
        # Each job's seq and text; the text lacks its opening brace.
        self.jobs: list[tuple[int, bytes]] = []
        # Went away before it was served.
        self.left = False

    def leave(self) -> None:
        self.left = True


def pick(queue: JobQueue, wanted: int, max_bytes: int) -> list[Job]:
    """Jobs that came back, lowest first, then those nobody has had yet."""
    table, config = queue.table, queue.topic.config
    limit = config.max_deliveries if config.dead_letter is not None else 0
    picked: list[int] = []
    overdue = 0
    while len(picked) < wanted and overdue < MAX_MOVES:
        seq = table.take_returned()
        if seq is None:
            break
        if limit and table.deliveries.get(seq, 0) >= limit:
            table.set_overdue(seq)
            overdue += 1
        else:
            picked.append(seq)
    if len(picked) < wanted and overdue < MAX_MOVES:
        missing = wanted - len(picked)
        fresh = live_from(queue.topic, table.next_fresh, missing)
        table.next_fresh = fresh[-1] + 1 if len(fresh) == missing else queue.topic.head + 1
        picked += fresh
    if not picked:
        return []
    jobs = read_jobs(queue.topic, picked, max_bytes)
    if len(jobs) < len(picked):
        _put_back(queue, picked, jobs)
    return jobs


def _put_back(queue: JobQueue, picked: list[int], jobs: list[Job]) -> None:
    """What did not fit waits for the next claim; what turned out to be lost is found out with it."""
    taken = {job.seq for job in jobs}
    for seq in picked:
        if seq not in taken:
            queue.table.give_back(seq)
    queue.forget_gone()


def deal(
    table: LeaseTable, jobs: list[Job], claims: list[Claim], now: int, next_lease_id: Callable[[], int]
) -> list[Lease]:
    """One job to each claimer in turn, until everybody has enough or none is left."""
    turns = deque(claims)
    lent = []
    for job in jobs:
        claim = turns[0]
        lease = table.lend(job.seq, next_lease_id(), claim.node, now + claim.lease_ms, claim.holder)
        lent.append(lease)
        claim.jobs.append((job.seq, job.text(lease, table.deliveries[job.seq])))
        if len(claim.jobs) >= claim.wanted:
            turns.popleft()
        else:
            turns.rotate(-1)
    return lent

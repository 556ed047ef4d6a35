"""Claims: which jobs come first, which were delivered too often, and which claim gets which job."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from topics.core import MAX_READ_BYTES
from topics.flow.queues.dead_letters import MAX_MOVES
from topics.flow.queues.jobs import StoredJob, live_from, read_jobs, with_leases
from topics.flow.queues.leases import Holder, JobLease, LeaseTable
from topics.flow.queues.losses import Notice
from topics.log import Fail, Topic

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

"""Claims: which jobs come first, which have been delivered too often, and which claim gets which job."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from topics.flow.queues.dead_letters import MAX_MOVES
from topics.flow.queues.jobs import Job, live_from, read_jobs, with_leases
from topics.flow.queues.leases import Holder, Lease, LeaseTable
from topics.flow.queues.losses import Notice
from topics.log import Fail, Topic
from topics.values import MAX_READ_BYTES

# What a claim may carry: like any read, so that one greedy worker does not hold up the others.
MAX_CLAIM_BYTES = MAX_READ_BYTES


@dataclass(slots=True, eq=False)
class Claim:
    """A worker's wish for jobs, and what it got."""

    node: str
    wanted: int
    lease_ms: int
    answer: "Callable[[Claim], None]"
    fail: Fail
    holder: Holder | None = None
    # Each job's seq and text; the text lacks its opening brace.
    jobs: list[tuple[int, bytes]] = field(default_factory=list)
    # Jobs that were lost: this worker is the one to be told. It has to say whether it was.
    notice: Notice | None = None
    # The worker went away before it was served.
    left: bool = False

    def leave(self) -> None:
        self.left = True


def pick(topic: Topic, table: LeaseTable, wanted: int, max_bytes: int) -> list[Job]:
    """Jobs that came back, lowest first, then those that were never delivered."""
    config = topic.config
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
        fresh = live_from(topic, table.next_fresh, missing)
        table.next_fresh = fresh[-1] + 1 if len(fresh) == missing else topic.head + 1
        picked += fresh
    jobs = read_jobs(topic, picked, max_bytes) if picked else []
    # What did not fit waits for the next claim; so does what turned out to be lost, until it is forgotten.
    if len(jobs) < len(picked):
        taken = {job.seq for job in jobs}
        for seq in picked:
            if seq not in taken:
                table.give_back(seq)
    return jobs


def deal(
    table: LeaseTable,
    jobs: list[Job],
    claims: list[Claim],
    now: int,
    shift: int,
    next_lease_ids: Callable[[int], int],
) -> list[Lease]:
    """One job to each claim in turn, until all have enough or no job is left.

    `shift`: between the table's time and Unix time. `next_lease_ids` tells the first of so many.
    """
    lent: list[Lease] = []
    for claim, share in zip(claims, _shares(jobs, claims), strict=True):
        seqs = [job.seq for job in share]
        first_id, deadline = next_lease_ids(len(seqs)), now + claim.lease_ms
        lent += table.lend(seqs, first_id, claim.node, deadline, claim.holder)
        texts = with_leases(share, first_id, deadline + shift, table.deliveries)
        claim.jobs = list(zip(seqs, texts, strict=True))
    return lent


def _shares(jobs: list[Job], claims: list[Claim]) -> list[list[Job]]:
    if len(claims) == 1:
        return [jobs]
    shares: list[list[Job]] = [[] for _ in claims]
    turns = deque(zip(shares, claims, strict=True))
    for job in jobs:
        share, claim = turns.popleft()
        share.append(job)
        if len(share) < claim.wanted:
            turns.append((share, claim))
    return shares

"""Leases: which worker holds which job, until when, and which jobs may be handed out again.

A delivered job is in exactly one state: leased, delayed, returned, overdue for the dead letters, or moving
there. Jobs from `next_fresh` on were never delivered and take no memory. Nothing in here reads a clock or a
record.

Times are those of a monotonic clock, so that setting the clock changes no lease. That clock starts anew with
every process: journal and snapshots have Unix time, and `shift` is the difference.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeAlias

import msgspec


class Entry(NamedTuple):
    """One job in the journal or a snapshot. Repeating an entry is harmless."""

    seq: int
    # 0 for no lease: then the time says from when the job may be claimed.
    lease_id: int
    node: str
    time: int
    deliveries: int
    # Why the last worker gave it back; absent if it gave no reason.
    error: str = ""


# An entry as it is written.
Packed: TypeAlias = tuple[int | str, ...]


# Times of leases and delays that ended early are dropped in bulk, at this many more than the others.
STALE_TIMES = 1024


@dataclass(slots=True, eq=False)
class Holder:
    """A connection whose leases end with it."""

    seqs: set[int] = field(default_factory=set)


class JobLease(msgspec.Struct, eq=False, gc=False):
    seq: int
    id: int
    node: str
    deadline: int
    holder: Holder | None
    # Its ack is being committed: it can be neither claimed nor acked again.
    closing: bool = False


class LeaseTable:
    def __init__(self, first_seq: int) -> None:
        self.leases: dict[int, JobLease] = {}
        self.deliveries: dict[int, int] = {}
        # The reason that the last worker gave.
        self.errors: dict[int, str] = {}
        # Jobs that a nack delays, and until when.
        self.delayed: dict[int, int] = {}
        # A heap of jobs that were delivered as often as allowed, and the jobs that are being moved.
        self.overdue: list[int] = []
        self.moving: set[int] = set()
        self.next_fresh = first_seq
        # A heap of jobs that came back.
        self.returned: list[int] = []
        self._deadlines: list[tuple[int, int]] = []
        self._delays: list[tuple[int, int]] = []
        # When restored entries were written.
        self._written_ms: dict[int, int] = {}

    # --- time -------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """End the leases whose deadline lies in the past, and the delays that are over."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] < now_ms:
            deadline, seq = heappop(deadlines)
            lease = self.leases.get(seq)
            if lease is not None and lease.deadline == deadline and not lease.closing:
                self.give_back(seq)
        delays = self._delays
        while delays and delays[0][0] <= now_ms:
            until, seq = heappop(delays)
            if self.delayed.get(seq) == until:
                del self.delayed[seq]
                heappush(self.returned, seq)

    # --- handing out ------------------------------------------------------------------------------------

    def take_returned(self) -> int | None:
        """Take the lowest job that came back; the caller has to put it somewhere."""
        return heappop(self.returned) if self.returned else None

    def grant(
        self, seqs: Sequence[int], first_id: int, node: str, deadline: int, holder: Holder | None = None
    ) -> list[JobLease]:
        """Lease jobs to one worker. Each has an id of its own: they count up from the first."""
        deliveries, deadlines = self.deliveries, self._deadlines
        granted = [JobLease(seq, first_id + at, node, deadline, holder) for at, seq in enumerate(seqs)]
        for lease in granted:
            seq = lease.seq
            self.leases[seq] = lease
            deliveries[seq] = deliveries.get(seq, 0) + 1
            heappush(deadlines, (deadline, seq))
        if len(deadlines) > STALE_TIMES:
            self._drop_stale_deadlines()
        if holder is not None:
            holder.seqs.update(seqs)
        return granted

    def _drop_stale_deadlines(self) -> None:
        if len(self._deadlines) > 2 * len(self.leases) + STALE_TIMES:
            self._deadlines = [(kept.deadline, kept.seq) for kept in self.leases.values()]
            heapify(self._deadlines)

    # --- what holders may do ----------------------------------------------------------------------------

    def held(self, seq: int, node: str, lease_id: int | None) -> JobLease | None:
        """Return the lease under which `node` holds the job, if it does; call `expire` first."""
        lease = self.leases.get(seq)
        if lease is None or lease.closing or lease.node != node:
            return None
        return None if lease_id is not None and lease_id != lease.id else lease

    def extend(self, lease: JobLease, deadline: int) -> None:
        lease.deadline = deadline
        heappush(self._deadlines, (deadline, lease.seq))
        self._drop_stale_deadlines()

    def give_back(self, seq: int) -> None:
        """The job may be claimed again at once."""
        self._end_lease(seq)
        heappush(self.returned, seq)

    def hold_back(self, seq: int, until_ms: int) -> None:
        self._end_lease(seq)
        self.delayed[seq] = until_ms
        heappush(self._delays, (until_ms, seq))
        if len(self._delays) > 2 * len(self.delayed) + STALE_TIMES:
            self._delays = [(until, delayed) for delayed, until in self.delayed.items()]
            heapify(self._delays)

    def reopen(self, lease: JobLease) -> None:
        """Free the job: its ack could not be committed."""
        if self.leases.get(lease.seq) is lease:
            self.give_back(lease.seq)

    def finish(self, seqs: Collection[int]) -> None:
        """Forget jobs that are done and deleted."""
        deliveries = self.deliveries
        for seq in seqs:
            self._end_lease(seq)
            deliveries.pop(seq, None)
        if self.moving:
            self.moving.difference_update(seqs)
        if self.errors:
            for seq in seqs:
                self.errors.pop(seq, None)

    def _end_lease(self, seq: int) -> None:
        lease = self.leases.pop(seq, None)
        if lease is not None and lease.holder is not None:
            lease.holder.seqs.discard(seq)

    # --- delivery limit ---------------------------------------------------------------------------------

    def set_overdue(self, seq: int) -> None:
        heappush(self.overdue, seq)

    def take_overdue(self, limit: int) -> list[int]:
        taken = [heappop(self.overdue) for _ in range(min(limit, len(self.overdue)))]
        self.moving.update(taken)
        return taken

    def put_back_overdue(self, seqs: Iterable[int]) -> None:
        """Keep jobs that the dead-letter topic refused: every claim tries again."""
        for seq in seqs:
            if seq in self.moving:
                self.moving.discard(seq)
                heappush(self.overdue, seq)

    def reconsider_overdue(self) -> None:
        """Return overdue jobs: the limit may have changed."""
        for seq in self.overdue:
            heappush(self.returned, seq)
        self.overdue = []

    # --- jobs that are gone -----------------------------------------------------------------------------

    def known(self) -> set[int]:
        """Return every job in the table."""
        return {*self.leases, *self.deliveries, *self.delayed, *self.overdue, *self.moving, *self.returned}

    def forget(self, gone: set[int]) -> None:
        """Forget jobs that a cap, age or a delete removed."""
        if not gone:
            return
        self.finish(gone)
        for seq in gone:
            self.delayed.pop(seq, None)
        self.overdue = [seq for seq in self.overdue if seq not in gone]
        self.returned = [seq for seq in self.returned if seq not in gone]
        heapify(self.overdue)
        heapify(self.returned)

    # --- keeping ----------------------------------------------------------------------------------------

    def entry(self, seq: int, shift: int) -> Packed:
        lease = self.leases.get(seq)
        deliveries = self.deliveries.get(seq, 0)
        error = (self.errors[seq],) if seq in self.errors else ()
        if lease is not None:
            return seq, lease.id, lease.node, lease.deadline + shift, deliveries, *error
        until = self.delayed.get(seq)
        return seq, 0, "", 0 if until is None else until + shift, deliveries, *error

    def restore(self, entries: Iterable[Sequence[Any]], written_ms: int) -> None:
        """Restore packed entries. Times are in Unix time until `resume`."""
        for packed in entries:
            seq, lease_id, node, time_ms, deliveries, error = Entry(*packed)
            self._end_lease(seq)
            self.delayed.pop(seq, None)
            self.errors.pop(seq, None)
            self.deliveries[seq] = deliveries
            if error:
                self.errors[seq] = error
            self.next_fresh = max(self.next_fresh, seq + 1)
            if lease_id:
                self.leases[seq] = JobLease(seq, lease_id, node, time_ms, None)
            elif time_ms:
                self.delayed[seq] = time_ms
            self._written_ms[seq] = written_ms

    def resume(self, over_ms: int, opened_steady_ms: int) -> None:
        """Convert restored times to the clock of this process.

        `over_ms`: the end of the time before, in Unix time: the stop of the previous process if it was clean,
        or the start of this one. A lease keeps the time that it had left then, and never more than it had
        when it was written: the clock may have been set back since.
        """

        def resumed(seq: int, time_ms: int) -> int:
            left_ms = min(time_ms - over_ms, time_ms - self._written_ms[seq])
            return opened_steady_ms + max(left_ms, -1)

        for lease in self.leases.values():
            lease.deadline = resumed(lease.seq, lease.deadline)
        self.delayed = {seq: resumed(seq, until) for seq, until in self.delayed.items()}
        self._written_ms = {}
        self._deadlines = [(lease.deadline, lease.seq) for lease in self.leases.values()]
        self._delays = [(until, seq) for seq, until in self.delayed.items()]
        heapify(self._deadlines)
        heapify(self._delays)

    def recount(self, live: Iterable[int]) -> None:
        """Return all live jobs that were delivered and are neither leased nor delayed, after a restart."""
        self.returned = [seq for seq in live if seq not in self.leases and seq not in self.delayed]
        heapify(self.returned)

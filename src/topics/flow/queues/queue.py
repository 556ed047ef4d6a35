"""One queue: a topic whose records are jobs, and the leases on them.

    claim ─▶ dispatcher ─▶ take_jobs ─▶ deal (grant leases in rotation) ─▶ journal, if durable ─▶ reply
    ack   ─▶ settle ─▶ one Delete frame for all acks before the next journal write ─▶ reply
    nack, extend ─▶ settle ─▶ lease table ─▶ journal, if durable ─▶ reply

Leases live in memory. A queue with `leases_durable` journals every change of a lease before the reply.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec

from topics.core import ApiError, topic_not_found
from topics.flow.queues.dead_letters import DeadLetters
from topics.flow.queues.dispatcher import MAX_CLAIM_BYTES, Claim, JobDispatcher, deal, take_jobs
from topics.flow.queues.jobs import gone_among, live_from
from topics.flow.queues.leases import Entry, Holder, JobLease, LeaseTable, Packed
from topics.flow.queues.losses import Losses, Notice
from topics.log import CallbackOp, Engine, Fail, Layer, Op, Selector, Topic, apply_delete
from topics.storage import FrameDraft, Kind

if TYPE_CHECKING:
    from topics.flow.queues.registry import Queues

# One deletion takes about this many jobs; further acks go into the next one.
MAX_JOBS = 10_000

# Jobs by seq, each with the lease it must be under, if the caller named one.
Guarded = Iterable[tuple[int, int | None]]


class Verb(Enum):
    ACK = b"acked"
    NACK = b"nacked"
    EXTEND = b"extended"


@dataclass(slots=True, eq=False)
class Settlement:
    """One request of a worker about its jobs, and the outcome. `done` gets the settlement itself."""

    verb: Verb
    node: str
    guarded: Guarded
    done: "Callable[[Settlement], None]"
    fail: Fail
    # How long a nack holds its jobs back, and why the worker gave them back.
    delay_ms: int = 0
    error: str = ""
    # The length of an extended lease.
    lease_ms: int = 0
    # The outcome: jobs that were settled, jobs that the node does not hold, and those of them that are lost.
    seqs: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    # When extended leases end, in Unix time.
    deadline: int = 0
    # The deletion of an ack, once it is committed.
    op: Op | None = None


class AckOp(Op):
    """The deletion of jobs that workers have finished, in their order.

    Its time is that of the first ack: a job that was held then does not expire before the commit.
    """

    __slots__ = ("_acks", "_lines", "_now", "_queue", "_selector", "seqs")

    is_late: ClassVar[bool] = True

    def __init__(self, queue: "JobQueue") -> None:
        topic = queue.topic
        # Not through super(), which would set the frames.
        self.topic = topic
        self.others = ()
        self.sync = topic.config.durability == "fsync"
        self.wal_ms = self.fsync_ms = 0.0
        self._queue = queue
        self._acks: list[Settlement] = []
        self.seqs: list[int] = []
        self._selector = Selector(topic.assigned + 1, seqs=self.seqs)
        self._now = queue.engine.now()
        self._lines = topic.cap_hi, topic.ttl_hi
        self.frames = []

    def join(self, ack: Settlement) -> None:
        self._acks.append(ack)
        self.seqs += ack.seqs
        self._selector.bound = self._queue.topic.assigned + 1

    def prepare(self) -> None:
        """Make the frame; no ack joins after that."""
        if not self.frames:
            queue = self._queue
            queue.close_deletion(self)
            payload = msgspec.msgpack.encode(self._selector)
            self.frames = [FrameDraft(Kind.DELETE, payload, topic_id=queue.topic.id, ts=self._now)]

    def apply(self) -> None:
        queue, seqs = self._queue, self.seqs
        count = apply_delete(queue.topic, self._selector, self._now)
        queue.engine.note_moved_lines(queue.topic, *self._lines)
        # A cap may have evicted some while the deletion was on its way.
        too_late = {seq for seq in seqs if queue.losses.is_lost(seq)} if count < len(seqs) else ()
        queue.note_done(seqs, count)
        queue.dispatcher.wake()
        for ack in self._acks:
            ack.op = self
            if too_late:
                ack.lost = [*ack.lost, *(seq for seq in ack.seqs if seq in too_late)]
                ack.seqs = [seq for seq in ack.seqs if seq not in too_late]
            ack.done(ack)

    def fail(self, error: ApiError) -> None:
        self._queue.close_deletion(self)
        for ack in self._acks:
            self._queue.reopen(ack, error)
            ack.fail(error)


# Flag of a frame that has an entry for every known job, not only for changed ones.
ALL_LEASES = 1


class JobQueue(Layer):
    def __init__(self, engine: Engine, topic: Topic, queues: "Queues") -> None:
        self.engine = engine
        self.topic = topic
        self.table = LeaseTable(topic.seq_base)
        self.dead_letters = DeadLetters(engine, topic, self.note_done)
        self.losses = Losses(topic)
        self.dispatcher = JobDispatcher(self, queues.pull)
        # The deletion that further acks may join.
        self._open_deletion: AckOp | None = None
        self._queues = queues
        self._config = topic.config
        # Records that the topic lost since its beginning, as far as the table knows.
        self._gone = -1
        self._recovered = False
        # The journal knows all leases, not only those granted since `leases_durable` was set.
        self._journalled = False

    # --- state ------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Return how many jobs are ready and how many are in flight now."""
        self._catch_up(self.engine.steady_ms())
        in_flight = len(self.table.leases)
        return self.topic.live_count - in_flight - len(self.table.delayed), in_flight

    def counters(self) -> dict[str, int]:
        ready, in_flight = self.counts()
        return {"ready": ready, "in_flight": in_flight, "dead_lettered": self.dead_letters.count}

    @property
    def ready(self) -> int:
        return self.topic.live_count - len(self.table.leases) - len(self.table.delayed)

    @property
    def is_gone(self) -> bool:
        """Whether the topic is deleted, or is about to be."""
        return self.topic.dropped or self.engine.by_name.get(self.topic.name) is not self.topic

    def refresh(self) -> int:
        """Apply the effects of time and of removals; call it before anything else is said or done.

        Returns the time, on the clock that leases go by.
        """
        self.engine.refresh(self.topic)
        now = self.engine.steady_ms()
        self._catch_up(now)
        return now

    @property
    def _shift(self) -> int:
        """What to add to a time of the lease table for it to be Unix time."""
        return self.engine.now() - self.engine.steady_ms() if self._recovered else 0

    def unix_ms(self, steady_ms: int) -> int:
        """Return a time of the lease table in Unix time."""
        return steady_ms + self._shift

    def _catch_up(self, now: int) -> None:
        topic = self.topic
        if not self._recovered:
            self._finish_recovery()
        if self._config is not topic.config:
            self._config = topic.config
            self.table.reconsider_overdue()
            self._journalled = self._journalled and self._config.leases_durable
        # Appends move both numbers. Their difference moves when a cap, age or a delete removes records.
        if topic.head - topic.live_count != self._gone:
            self._forget_gone()
        self.table.expire(now)

    def _forget_gone(self) -> None:
        self._gone = self.topic.head - self.topic.live_count
        self.losses.needs_rescan = True
        self.table.forget(gone_among(self.topic, self.table.known()))

    def _finish_recovery(self) -> None:
        """First use after a start: forget leases that do not survive a restart; their jobs are free."""
        self._recovered = True
        self._journalled = self.topic.config.leases_durable
        if not self._journalled:
            self.table = LeaseTable(self.topic.floor)
            return
        engine, before = self.engine, self.engine.witness.previous
        self.table.resume(before.clock_ms if before.clean else engine.opened_ms, engine.opened_steady_ms)
        # Deadlines are later by as long as the server was down after an orderly stop.
        self._journalled = not self.table.known()
        fresh = self.table.next_fresh
        self.table.recount(live_from(self.topic, self.topic.floor, fresh, fresh))

    # --- losses -----------------------------------------------------------------------------------------

    def note_deleted(self, first: int, last: int, count: int) -> None:
        self.losses.note_finished(first, last, count)

    def notice(self) -> Notice | None:
        """Return the lost jobs that a worker has to be told of; call `refresh` first."""
        return self.losses.offer() if self.losses.needs_rescan else None

    def told(self, notice: Notice) -> None:
        """Note that a worker was told of the losses."""
        self.losses.confirm(notice)
        self._queues.losses.note([self])

    # --- claiming ---------------------------------------------------------------------------------------

    def serve(self, claims: list[Claim]) -> None:
        """Hand out jobs to all of them, one each in turn, until all have enough or no job is left."""
        if self.is_gone:
            for claim in claims:
                claim.fail(topic_not_found(self.topic.name))
            return
        now, table = self.refresh(), self.table
        wanted = sum([claim.wanted for claim in claims])
        jobs = take_jobs(self.topic, table, wanted, MAX_CLAIM_BYTES * len(claims))
        # Reading them may have shown that some are lost.
        if self.topic.head - self.topic.live_count != self._gone:
            self._forget_gone()
        if self.losses.needs_rescan:
            claims[0].notice = self.losses.offer()
        leases = deal(table, jobs, claims, now, self._shift, self._queues.next_lease_ids)
        if table.overdue:
            self.dead_letters.move_overdue(table, partial(self._reply, claims, leases))
        else:
            self._reply(claims, leases)

    def _reply(self, claims: list[Claim], leases: list[JobLease]) -> None:
        """Reply to the claims, once the journal has their leases if these are durable."""
        if leases and self.topic.config.leases_durable:
            seqs = [lease.seq for lease in leases]
            self._journal(seqs, partial(self._reply, claims, []), partial(self._take_back, claims, leases))
            return
        for claim in claims:
            claim.done(claim)

    def _take_back(self, claims: list[Claim], leases: list[JobLease], error: ApiError) -> None:
        for lease in leases:
            self.table.reopen(lease)
        self.losses.withdraw()
        for claim in claims:
            claim.fail(error)

    # --- what holders do --------------------------------------------------------------------------------

    def settle(self, request: Settlement) -> None:
        """Ack, nack or extend the jobs that the node holds. Raises when an ack is refused."""
        now = self.refresh()
        # One by one: a seq that is named twice may no longer be held the second time.
        held: list[JobLease] = []
        unheld: list[int] = []
        for seq, lease_id in request.guarded:
            lease = self.table.held(seq, request.node, lease_id)
            if lease is None:
                unheld.append(seq)
                continue
            held.append(lease)
            if request.verb is Verb.ACK:
                lease.closing = True
            elif request.verb is Verb.EXTEND:
                self.table.extend(lease, now + request.lease_ms)
            else:
                if request.error:
                    self.table.errors[seq] = request.error
                if request.delay_ms:
                    self.table.hold_back(seq, now + request.delay_ms)
                else:
                    self.table.give_back(seq)
        request.seqs = [lease.seq for lease in held]
        if unheld:
            request.lost = [seq for seq in unheld if self.losses.is_lost(seq)]
            request.skipped = [seq for seq in unheld if seq not in request.lost] if request.lost else unheld
        if request.verb is Verb.ACK:
            self._delete(request)
            return
        if request.verb is Verb.EXTEND:
            request.seqs = list(dict.fromkeys(request.seqs))
            request.deadline = now + request.lease_ms + self._shift
        self._journal(request.seqs, partial(request.done, request), request.fail)
        if request.verb is Verb.NACK:
            self.dispatcher.wake()

    def _delete(self, ack: Settlement) -> None:
        """Delete acked jobs for good, in the deletion that other acks of this turn share."""
        if not ack.seqs:
            ack.done(ack)
            return
        commits, op = self.engine.queue, self._open_deletion
        try:
            if op is None:
                op = AckOp(self)
                op.join(ack)
                commits.submit(op)
                self._open_deletion = op
            else:
                commits.require_room(0)
                op.join(ack)
        except ApiError as error:
            self.reopen(ack, error)
            raise
        if len(op.seqs) >= MAX_JOBS:
            self._open_deletion = None

    def close_deletion(self, op: AckOp) -> None:
        """Let no more acks join the deletion."""
        if self._open_deletion is op:
            self._open_deletion = None

    def note_done(self, seqs: list[int], deleted: int) -> None:
        """Note that our own deletion of these jobs was applied."""
        self._gone += deleted
        self.table.finish(seqs)

    def reopen(self, ack: Settlement, error: ApiError) -> None:
        """Undo an ack that could not be committed."""
        # If the refusal is temporary, a worker that tries again still holds the jobs.
        is_temporary = error.code in ("throttled", "disk_full")
        for lease in [lease for seq in ack.seqs if (lease := self.table.leases.get(seq)) is not None]:
            lease.closing = False
            if not is_temporary:
                self.table.reopen(lease)

    def release(self, holder: Holder) -> None:
        """Free the jobs that an ended connection still holds."""
        table = self.table
        ended = [seq for seq in holder.seqs if not table.leases[seq].closing]
        for seq in ended:
            table.give_back(seq)
        if ended and not self.is_gone:
            self._journal(ended, _unheard, _unheard)
            self.dispatcher.wake()

    # --- durable leases ---------------------------------------------------------------------------------

    def _journal(self, seqs: list[int], done: Callable[[], None], fail: Fail) -> None:
        """Journal where these jobs are now, if leases are durable."""
        if not seqs or not self.topic.config.leases_durable:
            done()
        elif self._journalled:
            shift = self._shift
            self._write([self.table.entry(seq, shift) for seq in seqs], 0, done, fail)
        else:
            self._write_all(done, fail)

    def _write_all(self, done: Callable[[], None], fail: Fail) -> None:
        """Journal all leases. This voids earlier entries: such a lease may have ended without a frame."""
        self._journalled = True
        self._write(self.entries(), ALL_LEASES, done, fail)

    def _write(self, entries: list[Packed], flags: int, done: Callable[[], None], fail: Fail) -> None:
        payload, now = msgspec.msgpack.encode(entries), self.engine.now()
        op = CallbackOp(
            [FrameDraft(Kind.LEASE, payload, topic_id=self.topic.id, ts=now, flags=flags)],
            self.topic,
            lambda _: done(),
            fail,
            sync=self.topic.config.durability == "fsync",
        )
        try:
            self.engine.queue.submit(op)
        except ApiError as error:
            fail(error)

    def keep_leases(self, done: Callable[[], None], fail: Fail) -> None:
        """Journal the leases that were granted before the config made leases durable."""
        self.refresh()
        if self._journalled:
            done()
        else:
            self._write_all(done, fail)

    def restore(self, entries: list[Entry], flags: int, written_ms: int) -> None:
        """Apply a frame during recovery."""
        if flags & ALL_LEASES:
            self.table = LeaseTable(self.topic.seq_base)
        self.table.restore(entries, written_ms)

    def entries(self) -> list[Packed]:
        shift = self._shift
        return [self.table.entry(seq, shift) for seq in sorted(self.table.known())]


def _unheard(_: ApiError | None = None) -> None:
    """Do nothing: the worker's connection has ended."""

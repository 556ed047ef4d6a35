"""One queue: a topic whose records are jobs, and the leases on them.

    claim ─▶ (window of the cohort) ─▶ pick ─▶ deal in rotation ─▶ lend ─▶ answer
    ack   ─▶ one Delete frame for all that came meanwhile ─▶ answer
    nack, extend, release ─▶ lease table ─▶ answer

Leases live in memory. A queue with `leases_durable` journals every change of a lease before the answer.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from topics.flow.queues.acks import Ack, Acks
from topics.flow.queues.claims import MAX_CLAIM_BYTES, Claim, deal, pick
from topics.flow.queues.dead_letters import DeadLetters
from topics.flow.queues.jobs import gone_among, live_from
from topics.flow.queues.leases import Entry, Holder, Lease, LeaseTable, Packed
from topics.flow.queues.losses import Losses, Notice
from topics.log import CallbackOp, Engine, Fail, Layer, Op, Topic
from topics.storage import FrameDraft, Kind
from topics.values import ApiError, topic_not_found

# Flag of a frame that tells of every job there is something to tell of, not only of what has changed.
ALL_LEASES = 1

# Jobs by seq, each with the lease it must be under, if the caller said which.
Guarded = Iterable[tuple[int, int | None]]


class JobQueue(Layer):
    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        next_lease_ids: Callable[[int], int],
        keep_told: "Callable[[JobQueue], None]",
    ) -> None:
        """`keep_told` writes down which losses workers have been told of."""
        self.engine = engine
        self.topic = topic
        self.table = LeaseTable(topic.seq_base)
        self.dead_letters = DeadLetters(engine, topic, self._finish)
        self.losses = Losses(topic)
        self._acks = Acks(engine, topic, self.losses.is_lost, self._acked)
        # Called when a job or a place may have become free: work streams wait for that.
        self.listeners: list[Callable[[], None]] = []
        self._next_lease_ids = next_lease_ids
        self._keep_told = keep_told
        self._window: list[Claim] = []
        self._config = topic.config
        # Records the topic lost since its beginning, as far as the table has heard of it.
        self._gone = -1
        self._recovered = False
        # The journal knows all leases there are, not only those given since `leases_durable` was set.
        self._journalled = False

    # --- state ------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """How many jobs wait, are out, and were given up."""
        self._settle(self.engine.steady_ms())
        return {"ready": self.ready, "in_flight": self.in_flight, "dead_lettered": self.dead_letters.count}

    @property
    def ready(self) -> int:
        return self.topic.live_count - len(self.table.leases) - len(self.table.delayed)

    @property
    def in_flight(self) -> int:
        return len(self.table.leases)

    @property
    def is_gone(self) -> bool:
        """Deleted, or about to be."""
        return self.topic.dropped or self.engine.by_name.get(self.topic.name) is not self.topic

    def refresh(self) -> int:
        """Let time and removals have their effect before anything is said or done.

        Returns the time, on the clock that leases go by.
        """
        self.engine.refresh(self.topic)
        now = self.engine.steady_ms()
        self._settle(now)
        return now

    @property
    def _shift(self) -> int:
        """What to add to a time of the lease table for it to be Unix time."""
        return self.engine.now() - self.engine.steady_ms() if self._recovered else 0

    def unix_ms(self, steady_ms: int) -> int:
        """A time of the lease table, for those who are told of it."""
        return steady_ms + self._shift

    def _settle(self, now: int) -> None:
        if not self._recovered:
            self._settle_recovery()
        if self._config is not self.topic.config:
            self._config = self.topic.config
            self.table.reconsider_overdue()
            self._journalled = self._journalled and self._config.leases_durable
        self._forget_gone()
        self.table.settle(now)

    def _forget_gone(self) -> None:
        """Appending moves both numbers. If their difference moved, a cap, age or a delete took records."""
        gone = self.topic.head - self.topic.live_count
        if gone != self._gone:
            self._gone = gone
            self.losses.is_suspect = True
            self.table.forget(gone_among(self.topic, self.table.known()))

    def _settle_recovery(self) -> None:
        """First use after a start: forget leases that were not to survive; other jobs are free."""
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
        """Jobs that were lost, for a worker that is there to be told; ask when time has been settled."""
        return self.losses.offer() if self.losses.is_suspect else None

    def told(self, notice: Notice) -> None:
        """A worker has been told."""
        self.losses.confirm(notice)
        self._keep_told(self)

    def _part_lost(self, unheld: list[int]) -> tuple[list[int], list[int]]:
        """Of jobs that the node does not hold: those it has to do with no more, and those that were lost."""
        lost = [seq for seq in unheld if self.losses.is_lost(seq)]
        return ([seq for seq in unheld if seq not in lost], lost) if lost else (unheld, lost)

    def _changed(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    # --- claiming ---------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> None:
        """Serve at once, or together with all claims within the window that the first one opens."""
        window_ms = self.topic.config.claim_jitter_ms
        if not window_ms:
            self.serve([claim])
            return
        self._window.append(claim)
        if len(self._window) == 1:
            asyncio.get_running_loop().call_later(window_ms / 1000, self.close_window)

    def close_window(self) -> None:
        claims = [claim for claim in self._window if not claim.left]
        self._window = []
        if claims:
            self.serve(claims)

    def serve(self, claims: list[Claim]) -> None:
        """Hand out jobs to all of them, one each in turn, until all have enough or no job is left."""
        if self.is_gone:
            _fail_all(claims, topic_not_found(self.topic.name))
            return
        now = self.refresh()
        wanted = sum(claim.wanted for claim in claims)
        jobs = pick(self.topic, self.table, wanted, MAX_CLAIM_BYTES * len(claims))
        # Reading them may have found out that some are lost.
        self._forget_gone()
        claims[0].notice = self.notice()
        lent = deal(self.table, jobs, claims, now, self._shift, self._next_lease_ids)

        def answer() -> None:
            for claim in claims:
                claim.answer(claim)

        def answer_when_journalled() -> None:
            self._journal(lent, answer, lambda error: self._take_back(lent, claims, error))

        if self.table.overdue:
            self.dead_letters.move_overdue(self.table, answer_when_journalled)
        else:
            answer_when_journalled()

    def _take_back(self, lent: list[Lease], claims: list[Claim], error: ApiError) -> None:
        self._reopen(lent)
        self.losses.withdraw()
        _fail_all(claims, error)

    # --- what holders do --------------------------------------------------------------------------------

    def ack(
        self,
        node: str,
        guarded: Guarded,
        done: Callable[[int, list[int], list[int], Op | None], None],
        fail: Fail,
    ) -> None:
        """Delete jobs for good. `done` gets how many, which were skipped, which are lost, and the commit."""
        self.refresh()

        def close(lease: Lease) -> None:
            lease.closing = True

        leases, skipped, lost = self._each_held(node, guarded, close)
        if not leases:
            done(0, skipped, lost, None)
            return
        seqs = [lease.seq for lease in leases]

        def deleted(op: Op, too_late: list[int]) -> None:
            done(len(seqs) - len(too_late), skipped, lost + too_late if too_late else lost, op)

        def failed(error: ApiError) -> None:
            give_back(error)
            fail(error)

        def give_back(error: ApiError) -> None:
            if error.code in ("throttled", "disk_full"):
                # Nothing is wrong but the moment: a worker that tries again shall still hold the jobs.
                for lease in leases:
                    lease.closing = False
            else:
                self._reopen(leases)

        try:
            self._acks.add(Ack(seqs, deleted, failed))
        except ApiError as error:
            give_back(error)
            raise

    def _acked(self, seqs: list[int], deleted: int) -> None:
        self._finish(seqs, deleted)
        self._changed()

    def _finish(self, seqs: list[int], deleted: int) -> None:
        """Our own deletion of these jobs has been applied."""
        self._gone += deleted
        self.table.finish(seqs)

    def _reopen(self, leases: list[Lease]) -> None:
        for lease in leases:
            self.table.reopen(lease)

    def nack(
        self,
        node: str,
        guarded: Guarded,
        delay_ms: int,
        done: Callable[[int, list[int], list[int]], None],
        fail: Fail,
        *,
        error: str = "",
    ) -> None:
        """`done` gets how many, which seqs were skipped, and which are lost. `error` says why."""
        now = self.refresh()

        def end(lease: Lease) -> None:
            if error:
                self.table.errors[lease.seq] = error
            if delay_ms:
                self.table.hold_back(lease.seq, now + delay_ms)
            else:
                self.table.give_back(lease.seq)

        ended, skipped, lost = self._each_held(node, guarded, end)
        self._journal(ended, lambda: done(len(ended), skipped, lost), fail)
        self._changed()

    def extend(
        self,
        node: str,
        guarded: Guarded,
        lease_ms: int,
        done: Callable[[dict[int, int], list[int], list[int]], None],
        fail: Fail,
    ) -> None:
        """Set new deadlines; `done` gets them by seq, which seqs were skipped, and which are lost."""
        deadline = self.refresh() + lease_ms
        leases, skipped, lost = self._each_held(
            node, guarded, lambda lease: self.table.extend(lease, deadline)
        )
        extended = {lease.seq: lease for lease in leases}
        deadlines = dict.fromkeys(extended, deadline + self._shift)
        self._journal(list(extended.values()), lambda: done(deadlines, skipped, lost), fail)

    def _each_held(
        self, node: str, guarded: Guarded, act: Callable[[Lease], None]
    ) -> tuple[list[Lease], list[int], list[int]]:
        """Act on the lease of each job that the node holds; returns these, and the seqs of the others.

        The others are parted into those that are there or done, and those that were lost.

        One by one: what is named twice may not be held any more the second time.
        """
        held: list[Lease] = []
        unheld: list[int] = []
        for seq, lease_id in guarded:
            lease = self.table.held(seq, node, lease_id)
            if lease is None:
                unheld.append(seq)
            else:
                act(lease)
                held.append(lease)
        return held, *self._part_lost(unheld)

    def release(self, holder: Holder) -> None:
        """A connection has ended: what it still holds may be claimed at once."""
        table = self.table
        leases = [table.leases[seq] for seq in holder.seqs]
        ended = [lease for lease in leases if not lease.closing]
        for lease in ended:
            table.give_back(lease.seq)
        if ended and not self.is_gone:
            self._journal(ended, _unheard, _unheard)
            self._changed()

    # --- durable leases ---------------------------------------------------------------------------------

    def _journal(self, leases: list[Lease], done: Callable[[], None], fail: Fail) -> None:
        """Write down where these jobs are now, if they are to be found there after a restart."""
        if not leases or not self.topic.config.leases_durable:
            done()
        elif self._journalled:
            shift = self._shift
            self._write([self.table.entry(lease.seq, shift) for lease in leases], 0, done, fail)
        else:
            self._write_all(done, fail)

    def _write_all(self, done: Callable[[], None], fail: Fail) -> None:
        """Voids what the journal said earlier: leases that it knows of may have ended in secret."""
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
        """The config says by now that leases outlive the process: so do those that were given out before."""
        self.refresh()
        # Those that are written down already need not be again, whatever else the config has changed.
        if self._journalled:
            done()
        else:
            self._write_all(done, fail)

    def restore(self, entries: list[Entry], flags: int, written_ms: int) -> None:
        """Do again what a frame says."""
        if flags & ALL_LEASES:
            self.table = LeaseTable(self.topic.seq_base)
        self.table.restore(entries, written_ms)

    def entries(self) -> list[Packed]:
        shift = self._shift
        return [self.table.entry(seq, shift) for seq in sorted(self.table.known())]


def _fail_all(claims: list[Claim], error: ApiError) -> None:
    for claim in claims:
        claim.fail(error)


def _unheard(_: ApiError | None = None) -> None:
    """No worker waits for the answer: its connection has ended."""

"""The small writes of one turn of the loop, to whatever topics: one operation, and one piece of the journal.

    what each topic gets ─▶ a frame each ─▶ one operation for all that need no sync, one for the others
            └─ what is not plain, or meets a limit, is left to `append`, one topic after the other

Each topic stands for itself: nothing but the way is shared. What is left is not refused by that; whether it
is, and what its writer is told, is decided where there is time to look closely.
"""

from array import array
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from xxhash import xxh3_64_intdigest

from topics.log.core import Core
from topics.log.run import RECORD_BYTES, HotColumns, Run
from topics.log.topic import Topic
from topics.log.write.append import show
from topics.log.write.append_frame import plain_frame
from topics.log.write.batch import Plain
from topics.log.write.commit_queue import MAX_WAITING_OPS, CommitQueue
from topics.log.write.gather import split_plain
from topics.log.write.idempotency import KeyedWrite, MaybeRetry, TopicKeys
from topics.log.write.key_chunk import KeyChunk
from topics.log.write.operation import Op
from topics.log.write.reservation import extend_if_short
from topics.storage import FILE_HEADER_BYTES, File, Journal, JournalFile, Kind
from topics.values import (
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_SEQ,
    REMEMBERS,
    SYNCED,
    ApiError,
    accelerator,
    verdict_on,
)

_APPEND, _KEYED = int(Kind.APPEND), int(Kind.KEYED)
# So much of the journal may be written in one go before it is seen to that memory and unsynced journal stay
# within their bounds, which are a hundred times larger.
_UNSEEN_BYTES = 64 * 1024
_NOTHING: set[Topic] = set()
_NOBODY: list[Topic] = []

Writer = TypeVar("Writer")
# What one topic has got, a record of each writer in this order: the topic, the writers, the first seq, how
# many, how many bytes of data, their time, and who remembers their keys, if they have some.
Share: TypeAlias = tuple[Topic, list[Writer], int, int, int, int, TopicKeys | None]

# Shares of topics that are limited, topics that have listeners, and keys that somebody waits for.
Odd: TypeAlias = tuple[list[Share[Writer]], list[Topic], list[TopicKeys]]

# The writers of one topic, what each has sent, and their idempotency keys, if they have some; and its name.
Sent: TypeAlias = tuple[list[Writer], list[bytes], list[bytes] | None]
Addressed: TypeAlias = tuple[str, Sent[Writer]]


class Answering(Protocol[Writer]):
    def answer_together(self, op: "TogetherOp[Writer]") -> None: ...

    def fail(self, writers: list[Writer], started: float, error: ApiError) -> None: ...


class TogetherOp(Op, Generic[Writer]):
    __slots__ = ("_lane", "clock_ms", "shares", "started")

    grows = True

    def __init__(self, lane: "Together[Writer]", *, sync: bool) -> None:
        super().__init__([], None, sync=sync)
        self._lane = lane
        self.writers = 0
        self.shares: list[Share[Writer]] = []
        # When the first of the writers came, on the clock of perf_counter; and when all were written.
        self.started = 0.0
        self.clock_ms = 0

    def forget_behind(self, count: int) -> None:
        """Only so many shares, the first ones, have come about."""
        del self.shares[count:], self.buffers[count:]

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple([share[0] for share in self.shares])

    def submit(self, queue: CommitQueue, started: float, clock_ms: int) -> None:
        self.started, self.clock_ms = started, clock_ms
        queue.submit_checked(self)

    def apply(self) -> None:
        lane = self._lane
        heard = lane.publish(self.shares, self.clock_ms)
        lane.answering.answer_together(self)
        for topic in heard:
            topic.wake()

    def fail(self, error: ApiError) -> None:
        for _, writers, *_, keys in self.shares:
            if keys is not None:
                keys.fail(error)
            self._lane.answering.fail(writers, self.started, error)

    def withdraw(self) -> None:
        for topic, _, first_seq, count, size, _, _ in reversed(self.shares):
            topic.take_back(first_seq - 1, count, size)
            topic.withdraw_reservation()


class Together(Generic[Writer]):
    """The way itself, with the accelerator where there is one."""

    def __init__(self, core: Core, answering: Answering[Writer]) -> None:
        self._core = core
        self.answering = answering
        native = accelerator.native
        types = Topic, Run, HotColumns, TopicKeys, KeyChunk, Journal, JournalFile, File, TogetherOp
        alone = core.store.unsealed, core.keys, core.counters, core.totals
        limits = MAX_SEQ, RECORD_BYTES, FILE_HEADER_BYTES
        self._native: Any = native and native.Together(
            types, alone, core.by_name, array, verdict_on, xxh3_64_intdigest, *limits
        )
        # Of the turn to come, without a sync and with one; made before anything is written.
        self._unsynced: TogetherOp[Writer] | None = None
        self._synced: TogetherOp[Writer] | None = None
        # Up to there, what is written in one go need not be followed by anything.
        self._seen_to = 0

    def commit(self, wanted: list[Addressed[Writer]], started: float) -> list[int] | None:
        """Write, show and answer in one go what can be written together, if nothing else is under way.

        Returns the indexes of what is left; None if all of it has to wait.
        """
        core = self._core
        queue, now = core.queue, core.now()  # which journals something where the clock was set back
        if self._native is None or core.settings.max_total_bytes or not queue.takes_at_once():
            return None
        unsynced = self._unsynced = self._unsynced or TogetherOp(self, sync=False)
        synced = self._synced = self._synced or TogetherOp(self, sync=True)
        left: list[int]
        try:
            left, notable, is_crowded, wal_ms, error = self._native.commit(
                wanted, _NOTHING, core.touched, now, core.journal, unsynced, synced
            )
        except MemoryError:
            return None  # before anything had its seqs
        if error is not None:
            self._rescue(error, started, now)
            return left
        # The journal has them: whatever goes wrong from here on, it does not get them again.
        self._unsynced = self._synced = None
        if synced.shares:
            # Before the others show, so that whatever they bring about finds all that is written.
            synced.started, synced.clock_ms, synced.wal_ms = started, now, wal_ms
            queue.await_sync(synced)
        else:
            self._synced = synced
        try:
            if unsynced.shares:
                unsynced.started, unsynced.clock_ms, unsynced.wal_ms = started, now, wal_ms
                queue.show(unsynced)
            if queue.refusal is None:
                if notable or is_crowded:
                    self._see_to_if_possible(notable, (unsynced, synced) if is_crowded else (), now)
                # Nobody else has it: it may serve again.
                del unsynced.shares[:], unsynced.buffers[:]
                self._unsynced = unsynced
        finally:
            # Whatever goes wrong with some, the others do not wait in vain for their sync.
            position = core.journal.position
            if position > self._seen_to or self._synced is None:
                self._seen_to = position + _UNSEEN_BYTES
                queue.written_at_once()
        return left

    def _rescue(self, error: Exception, started: float, now: int) -> None:
        """The journal has not taken what was to be written in one go."""
        ops: list[Op] = []
        for op in (self._unsynced, self._synced):
            if op is not None and op.shares:
                op.started, op.clock_ms = started, now
                ops.append(op)
        self._unsynced = self._synced = None
        queue = self._core.queue
        queue.rescue(error, ops)
        # With room from the reserve, some of it may wait for a sync.
        queue.written_at_once()

    def append(self, wanted: list[Addressed[Writer]], started: float) -> list[int]:
        """Write what can be written together; returns the indexes of what is left."""
        core, queue = self._core, self._core.queue
        # A reservation may come with each.
        room = MAX_WAITING_OPS - len(queue.waiting) - queue.held
        if queue.refusal is not None or core.settings.max_total_bytes or 2 * len(wanted) + 2 > room:
            return list(range(len(wanted)))
        unsynced = self._unsynced = self._unsynced or TogetherOp(self, sync=False)
        synced = self._synced = self._synced or TogetherOp(self, sync=True)
        # Behind what waits for something, a topic keeps its order; the others shall not wait for that.
        held = queue.held_topics
        if queue.waiting:
            held = held.union(*[op.topics for op in queue.waiting])
        now = core.now()
        if self._native is None:
            left = list(range(len(wanted)))
        else:
            left, notable, is_crowded = self._native.append(
                wanted, held, core.touched, now, core.journal, unsynced, synced
            )
            if notable or is_crowded:
                self._see_to(notable, (unsynced, synced) if is_crowded else (), now)
        if left:
            left = self._append_each(left, wanted, now, held, unsynced, synced)
        if unsynced.shares:
            self._unsynced = None
            unsynced.submit(queue, started, now)
        if synced.shares:
            self._synced = None
            synced.submit(queue, started, now)
        return left

    def _see_to(self, notable: list[Topic], crowded: tuple[TogetherOp[Writer], ...], now: int) -> None:
        """What the records have brought about: full runs, short reservations, too many keys."""
        core, unsealed = self._core, self._core.store.unsealed
        for op in crowded:
            for share in op.shares:
                if share[6] is not None:
                    core.keys.enforce_bounds(share[6], now)
        for topic in notable:
            run = topic.runs[-1]
            if unsealed.has_reached_limit(run):
                unsealed.complete(run)
            extend_if_short(core, topic)

    def _see_to_if_possible(
        self, notable: list[Topic], crowded: tuple[TogetherOp[Writer], ...], now: int
    ) -> None:
        """The same where all are answered, and those who are left are not to hear of it."""
        with suppress(MemoryError):  # the next write to these topics finds it, and tries again
            self._see_to(notable, crowded, now)

    def _append_each(
        self,
        left: list[int],
        wanted: list[Addressed[Writer]],
        now: int,
        held: set[Topic],
        unsynced: TogetherOp[Writer],
        synced: TogetherOp[Writer],
    ) -> list[int]:
        """The indexes of what is still left. What there is to write is taken apart at once, if it can be."""
        by_name = self._core.by_name
        split: Plain | None = None
        # What the accelerator has left is hardly ever plain.
        if self._native is None:
            all_bodies: list[bytes] = []
            for index in left:
                all_bodies += wanted[index][1][1]
            split = _split_if_possible(all_bodies)
        still: list[int] = []
        at = 0
        for index in left:
            name, (writers, bodies, keys) = wanted[index]
            start, at = at, at + len(bodies)
            if split is None:
                plain = _split_if_possible(bodies)
            else:
                plain = split[0][start:at], split[1][start:at]
            topic = by_name.get(name)
            if topic is None or topic in held or plain is None:
                still.append(index)
                continue
            op = synced if topic.verdict & SYNCED else unsynced
            if keys is not None and topic.verdict & REMEMBERS:
                is_done = self._append_keyed(op, topic, writers, plain, keys, now)
            else:
                is_done = self._append_share(op, topic, writers, plain, now)
            if not is_done:
                still.append(index)
        return still

    def _append_keyed(
        self,
        op: TogetherOp[Writer],
        topic: Topic,
        writers: list[Writer],
        plain: Plain,
        keys: list[bytes],
        now: int,
    ) -> bool:
        """A key stands for all records that came with it: those with more than one are left."""
        if max(map(len, keys)) > MAX_IDEMPOTENCY_KEY_BYTES:
            return False
        taken: KeyedWrite | None = None
        try:
            taken = self._core.keys.of(topic).take_each(keys)
            if self._append_share(op, topic, writers, plain, now, taken):
                return True
        except (MaybeRetry, MemoryError):
            pass
        if taken is not None:
            taken.withdraw()
        return False

    def _append_share(
        self,
        op: TogetherOp[Writer],
        topic: Topic,
        writers: list[Writer],
        plain: Plain,
        now: int,
        taken: KeyedWrite | None = None,
    ) -> bool:
        """False if it is left."""
        core = self._core
        journal, before, first_seq = core.journal, len(op.shares), topic.assigned + 1
        count, size = len(writers), sum(plain[1])
        try:
            made = topic.append_plain(plain, size, now, journal.position)
            if made is None:
                return False
            ts, rows = made
            kind, keys, holder = _APPEND, b"", None
            if taken is not None:
                kind, keys, holder = _KEYED, taken.encoded(), topic.keys
                taken.remember(first_seq, now)
            frame = plain_frame(kind, rows, plain[1], topic.id, first_seq, ts, journal.synced, ts - now, keys)
            op.shares.append((topic, writers, first_seq, count, size, ts, holder))
            op.buffers.append(frame)
        except MemoryError:
            op.forget_behind(before)
            if topic.assigned >= first_seq:
                topic.take_back(first_seq - 1, count, size)
            return False
        op.writers += count
        core.touched.add(topic)
        core.counters.frames += count
        extend_if_short(core, topic)
        return True

    def publish(self, shares: list[Share[Writer]], clock_ms: int) -> list[Topic]:
        """They become visible; returns the topics that have listeners."""
        odd = self._publish_each(shares) if self._native is None else self._native.publish(shares)
        if odd is None:
            return _NOBODY
        limited, heard, waited = odd
        # A limit may have come meanwhile, by a change that was on its way before them.
        for topic, _, _, count, size, ts, _ in limited:
            show(self._core, topic, count, size, ts, clock_ms)
        for keys in waited:
            keys.answer_waiters()
        return heard

    def _publish_each(self, shares: list[Share[Writer]]) -> Odd[Writer] | None:
        """All but those of topics that are limited; None if there is nothing odd about any."""
        limited: list[Share[Writer]] = []
        heard: list[Topic] = []
        waited: list[TopicKeys] = []
        records = size_of_all = 0
        try:
            for share in shares:
                topic, _, _, count, size, ts, keys = share
                if topic.listeners:
                    heard.append(topic)
                if keys is not None and keys.waiters:
                    waited.append(keys)
                if not topic.verdict:
                    limited.append(share)
                    continue
                topic.publish_uncounted(count, size, ts)
                records += count
                size_of_all += size
        finally:
            # Also if it ends early: so many are to be seen.
            self._core.totals.published(records, size_of_all)
        return (limited, heard, waited) if limited or heard or waited else None


def _split_if_possible(bodies: list[bytes]) -> Plain | None:
    """Without memory for it, each writer is to come by itself: others may have their seqs already."""
    native = accelerator.native
    with suppress(MemoryError):
        # Most of what the accelerator has left is not plain, and nobody says so sooner than its frame.
        if native is None or native.plain_frame(_APPEND, b"", bodies, 0, 1, 0, 0, 0, 0, xxh3_64_intdigest):
            return split_plain(bodies)
    return None

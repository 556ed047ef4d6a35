"""What workers do with jobs that they hold: ack, nack and extend are values of one `Settlement`.

Acks that arrive before the journal is written share one deletion, and so one frame.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from topics.core import ApiError
from topics.log import Fail, Op, Selector, apply_delete
from topics.storage import FrameDraft, Kind

if TYPE_CHECKING:
    from topics.flow.queues.queue import JobQueue

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

    __slots__ = ("_acks", "_frames", "_lines", "_now", "_queue", "_selector", "seqs")

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
        self._frames: list[FrameDraft] = []

    def join(self, ack: Settlement) -> None:
        self._acks.append(ack)
        self.seqs += ack.seqs
        self._selector.bound = self._queue.topic.assigned + 1

    @property
    def frames(self) -> list[FrameDraft]:  # type: ignore[override]
        """The commit queue asks for the frame right before it writes it; no ack joins after that."""
        if not self._frames:
            queue = self._queue
            queue.close_deletion(self)
            payload = msgspec.msgpack.encode(self._selector)
            self._frames = [FrameDraft(Kind.DELETE, payload, topic_id=queue.topic.id, ts=self._now)]
        return self._frames

    def apply(self) -> None:
        queue, seqs = self._queue, self.seqs
        count = apply_delete(queue.topic, self._selector, self._now)
        queue.engine.note_moved_lines(queue.topic, *self._lines)
        # A cap may have evicted some while the deletion was on its way.
        too_late = {seq for seq in seqs if queue.losses.is_lost(seq)} if count < len(seqs) else ()
        queue.note_acked(seqs, count)
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

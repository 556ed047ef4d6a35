"""Acknowledgements: all that come before the journal is written share one deletion, and so one frame."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from topics.log import Engine, Fail, Op, Selector, Topic, apply_delete
from topics.storage import FrameDraft, Kind
from topics.values import ApiError

# As many jobs as one deletion takes, roughly; if there are more, it is followed by another.
MOST_JOBS = 10_000


@dataclass(slots=True, eq=False)
class Ack:
    """What one worker has finished. `done` gets the commit, and which of the jobs were lost before it."""

    seqs: list[int]
    done: Callable[[Op, list[int]], None]
    fail: Fail


class Acks:
    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        is_lost: Callable[[int], bool],
        finish: Callable[[list[int], int], None],
    ) -> None:
        """`finish` is told which jobs have left the queue, and how many records were deleted with them."""
        self.engine = engine
        self.topic = topic
        self.is_lost = is_lost
        self.finish = finish
        # The deletion that others may still join.
        self._open: AckOp | None = None

    def add(self, ack: Ack) -> None:
        """Raises when there is no room for it."""
        queue, op = self.engine.queue, self._open
        if op is None:
            op = AckOp(self)
            op.join(ack)
            queue.submit(op)
            self._open = op
        else:
            queue.require_room(0)
            op.join(ack)
        if len(op.seqs) >= MOST_JOBS:
            self._open = None

    def close(self, op: "AckOp") -> None:
        if self._open is op:
            self._open = None


class AckOp(Op):
    """The deletion of jobs that workers have finished, in their order. Its time is that of the first of them:
    what was held then is not taken by its age before this is committed."""

    __slots__ = ("_acks", "_all", "_frames", "_lines", "_now", "_selector", "seqs")

    def __init__(self, every: Acks) -> None:
        topic = every.topic
        # Not through super(), which would set the frames.
        self.topic = topic
        self.others = ()
        self.sync = topic.config.durability == "fsync"
        self.wal_ms = self.fsync_ms = 0.0
        self._all = every
        self._acks: list[Ack] = []
        self.seqs: list[int] = []
        self._selector = Selector(topic.assigned + 1, seqs=self.seqs)
        self._now = every.engine.now()
        self._lines = topic.cap_hi, topic.ttl_hi
        self._frames: list[FrameDraft] = []

    def join(self, ack: Ack) -> None:
        self._acks.append(ack)
        self.seqs += ack.seqs
        self._selector.bound = self._all.topic.assigned + 1

    @property
    def frames(self) -> list[FrameDraft]:  # type: ignore[override]
        """The queue asks for the frame when it is about to write it; no acknowledgement joins after that."""
        if not self._frames:
            every = self._all
            every.close(self)
            payload = msgspec.msgpack.encode(self._selector)
            self._frames = [FrameDraft(Kind.DELETE, payload, topic_id=every.topic.id, ts=self._now)]
        return self._frames

    def apply(self) -> None:
        every, seqs = self._all, self.seqs
        count = apply_delete(every.topic, self._selector, self._now)
        every.engine.note_moved_lines(every.topic, *self._lines)
        # A cap may have taken some while the deletion was on its way.
        too_late = {seq for seq in seqs if every.is_lost(seq)} if count < len(seqs) else ()
        every.finish(seqs, count)
        for ack in self._acks:
            ack.done(self, [seq for seq in ack.seqs if seq in too_late] if too_late else [])

    def fail(self, error: ApiError) -> None:
        self._all.close(self)
        for ack in self._acks:
            ack.fail(error)

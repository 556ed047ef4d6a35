"""Appends to several topics that are committed together: one frame, visible at one moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from topics.codec import Write
from topics.core import MAX_SEQ, ApiError, InvariantViolated, short_of_memory
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.append import AppendOp, add_records, admit, admit_total
from topics.log.write.operation import Fail, Op
from topics.log.write.reservation import extend_if_short
from topics.storage import FrameDraft, Kind

Part: TypeAlias = tuple[Topic, Sequence[Write]]


@dataclass(slots=True, frozen=True)
class Amount:
    """How many records a topic gets, and how many bytes of data and meta."""

    topic: Topic
    count: int
    size: int

    @classmethod
    def of(cls, topic: Topic, writes: Sequence[Write]) -> "Amount":
        return cls(topic, sum(write.count for write in writes), sum(write.size for write in writes))


class GroupOp(Op):
    """One frame that holds the frames of all members, so that its checksum covers them together."""

    __slots__ = ("_on_done", "_on_error", "members")

    grows = True

    def __init__(self, on_done: Callable[[], None], on_error: Fail, *, sync: bool) -> None:
        super().__init__([], None, sync=sync)
        self.members: list[AppendOp] = []
        self._on_done = on_done
        self._on_error = on_error

    def apply(self) -> None:
        for member in self.members:
            member.publish()
        # Readers wake only when every topic shows its records.
        self._on_done()
        for member in self.members:
            member.answer()

    def fail(self, error: ApiError) -> None:
        for member in self.members:
            member.fail(error)
        self._on_error(error)

    def withdraw(self) -> None:
        for member in reversed(self.members):
            member.withdraw()


def admit_group(engine: Engine, amounts: Sequence[Amount], now: int) -> None:
    """Raise if a topic has no room for its part, or the log for all parts."""
    for amount in amounts:
        admit(engine, amount.topic, amount.count, amount.size, now)
        if amount.topic.assigned + amount.count > MAX_SEQ:
            raise ApiError("internal", "a topic has used up its seqs")
    admit_total(engine, sum(amount.size for amount in amounts), now)


def append_group(
    engine: Engine,
    parts: Sequence[Part],
    now: int,
    fact: Callable[[list[AppendOp]], FrameDraft],
    on_done: Callable[[], None],
    on_error: Fail,
    *,
    sync: bool,
    others: tuple[Topic, ...] = (),
) -> None:
    """Commit all parts as one. Raises before anything has changed when it is refused.

    `fact` returns a frame that is committed with the records, once their seqs are known. `others` are topics
    without records here whose earlier operations come first, too.
    """
    engine.queue.assign_pending()
    # Each part may bring a reservation: nothing is refused once the first part has its seqs.
    room = 1 + len(parts)
    engine.queue.require_growth(room)
    admit_group(engine, [Amount.of(*part) for part in parts], now)
    # Expiry may have found out meanwhile that the disk is full.
    engine.queue.require_growth(room)
    group = GroupOp(on_done, on_error, sync=sync)
    group.others = (*(topic for topic, _ in parts), *others)
    size = 0
    for topic, writes in parts:
        op = AppendOp(engine, topic, now)
        for write in writes:
            op.count += write.count
            op.size += write.size
        try:
            size += len(add_records(engine, op, list(writes)).text)
        except (MemoryError, InvariantViolated) as error:
            if isinstance(error, InvariantViolated) or group.members:
                # Seqs may be assigned that will never be committed.
                engine.queue.give_up(error if str(error) else short_of_memory(), group)
                return
            raise short_of_memory() from None
        group.members.append(op)
    group.sync = sync or any(member.sync for member in group.members)
    frames = [frame for member in group.members for frame in member.frames]
    header = {"ts": now}
    if len(parts) == 1:
        # If the payload is damaged, the header still has the seqs.
        only = group.members[0]
        header |= {"topic_id": only.topic.id, "first_seq": only.first_seq, "count": only.count}
    group.frames = [FrameDraft(Kind.GROUP, [*frames, fact(group.members)], **header)]
    engine.queue.submit_checked(group, size, sum(member.count for member in group.members))
    for topic, _ in parts:
        extend_if_short(engine, topic)

"""Writes to several topics that are committed together: one frame, one moment at which all become visible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topics.log.core import Core
from topics.log.topic import Topic
from topics.log.write.append import AppendOp, admit, admit_total, append_batch
from topics.log.write.batch import Batch
from topics.log.write.operation import Fail, Op
from topics.storage import Kind
from topics.values import ApiError

Write = tuple[Topic, Sequence[Batch]]


@dataclass(slots=True, frozen=True)
class Amount:
    """How much a topic gets: records, and bytes of their data and meta."""

    topic: Topic
    count: int
    size: int

    @classmethod
    def of(cls, topic: Topic, batches: Sequence[Batch]) -> "Amount":
        return cls(topic, sum(batch.count for batch in batches), sum(batch.size for batch in batches))


class GroupOp(Op):
    """It takes its members' frames into one of its own, whose checksum makes them stand or fall together."""

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
        # No reader is woken by one topic before all of them show what they got.
        self._on_done()
        for member in self.members:
            member.announce()

    def fail(self, error: ApiError) -> None:
        self._on_error(error)

    def withdraw(self) -> None:
        for member in reversed(self.members):
            member.withdraw()


def admit_group(core: Core, amounts: Sequence[Amount], now: int) -> None:
    """Refuse the group if a topic would refuse its part, or if all parts together are too much."""
    for amount in amounts:
        admit(core, amount.topic, amount.count, amount.size, now)
    admit_total(core, sum(amount.size for amount in amounts), now)


def append_group(
    core: Core,
    writes: Sequence[Write],
    now: int,
    fact: Callable[[list[AppendOp]], list[bytes]],
    on_done: Callable[[], None],
    on_error: Fail,
    *,
    sync: bool,
    others: tuple[Topic, ...] = (),
) -> None:
    """Commit all writes as one; `fact` adds a frame that says what they were, once their seqs are known.

    `others`: topics without a write here whose earlier operations it must not overtake either.
    """
    # Each batch may bring a reservation with it; nothing may be refused once the first one has its seqs.
    room = 1 + sum(len(batches) for _, batches in writes)
    core.queue.require_growth(room)
    admit_group(core, [Amount.of(*write) for write in writes], now)
    # Once more: what went by age meanwhile may have found out that the disk takes no more.
    core.queue.require_growth(room)
    group = GroupOp(on_done, on_error, sync=sync)
    group.others = (*(topic for topic, _ in writes), *others)
    try:
        for topic, batches in writes:
            for batch in batches:
                op = AppendOp(core, topic, batch, now)
                append_batch(core, topic, batch, op, submit=_member_of(group))
    except ApiError as error:
        if not group.members:
            raise
        # Out of memory, with seqs given out that will never be committed.
        core.queue.give_up(error, group)
        return
    group.sync = sync or any(member.sync for member in group.members)
    frames = [frame for member in group.members for frame in member.buffers]
    header = {"ts": now}
    if len(writes) == 1:
        # Should the payload rot, the header still tells which seqs went with it.
        first_seq, count = group.members[0].first_seq, sum(member.count for member in group.members)
        header |= {"topic_id": writes[0][0].id, "first_seq": first_seq, "count": count}
    group.buffers = core.journal.frame_of(Kind.GROUP, [*frames, *fact(group.members)], **header)
    core.queue.submit(group)


def _member_of(group: GroupOp) -> Callable[[Op], None]:
    def take(op: Op) -> None:
        assert isinstance(op, AppendOp)
        group.members.append(op)

    return take

"""A large write to several topics, committed together: its records go into segments, which are adopted.

    begin (seqs are given out)  ─▶  segments are written and synced (any thread)  ─▶  adopt (one small frame)

Until then nothing refers to the segments: a crash leaves files that the next start removes. Meanwhile the
commit queue keeps back what comes to the same topics, and nothing else.
"""

from collections.abc import Callable, Sequence

from topics.log.core import Core
from topics.log.topic import Topic
from topics.log.write.adopted import Adopted
from topics.log.write.append import AppendOp
from topics.log.write.group import Amount, GroupOp, admit_group
from topics.log.write.operation import Fail
from topics.log.write.reservation import cover
from topics.storage import Kind
from topics.values import MAX_SEQ, ApiError


class AdoptedRows(AppendOp):
    """What one topic gets; its runs are known when the segments are written."""

    __slots__ = ("runs",)

    def __init__(self, core: Core, amount: Amount, now: int) -> None:
        super().__init__(core, amount.topic, amount, now)
        self.runs: Sequence[Adopted] = ()

    def publish(self) -> None:
        assert self.topic is not None
        for run in self.runs:
            self.topic.adopt(run)
        super().publish()


class Adoption(GroupOp):
    """It has its place in the order from the beginning, and its frame when the segments are there."""

    __slots__ = ("is_ready",)

    def __init__(self, on_done: Callable[[], None], on_error: Fail) -> None:
        super().__init__(on_done, on_error, sync=True)
        self.is_ready = False


def begin_adoption(
    core: Core, amounts: Sequence[Amount], now: int, on_done: Callable[[], None], on_error: Fail
) -> Adoption:
    """Give out seqs, and keep back what comes behind. Raises before anything changed when it is refused."""
    room = 1 + len(amounts)
    core.queue.require_growth(room)
    admit_group(core, amounts, now)
    if any(amount.topic.assigned + amount.count > MAX_SEQ for amount in amounts):
        raise ApiError("internal", "a topic has used up its seqs")
    # Once more: what went by age meanwhile may have found out that the disk takes no more.
    core.queue.require_growth(room)
    adoption = Adoption(on_done, on_error)
    adoption.others = tuple(amount.topic for amount in amounts)
    for amount in amounts:
        adoption.members.append(_promised(core, amount, now))
    core.queue.submit(adoption)
    return adoption


def _promised(core: Core, amount: Amount, now: int) -> AdoptedRows:
    topic = amount.topic
    rows = AdoptedRows(core, amount, now)
    # Later than now where the clock was set back: the time of records never falls.
    rows.ts = max(now, topic.last_ts)
    rows.first_seq = topic.assigned + 1
    if rows.last_seq > topic.reserved:
        rows.reserve_to = cover(core, topic, rows.last_seq, rows)
    topic.promise(amount.count, amount.size, rows.ts)
    return rows


def adopt(
    core: Core, adoption: Adoption, runs: dict[Topic, list[Adopted]], fact: Callable[[], list[bytes]]
) -> None:
    """The segments are on disk, names included. `fact` gives a frame that says what they were."""
    frames: list[bytes] = []
    for rows in adoption.members:
        assert isinstance(rows, AdoptedRows)
        assert rows.topic is not None
        rows.runs = runs[rows.topic]
        frames += rows.buffers
        for run in rows.runs:
            ahead_ms = rows.ts - rows.clock_ms
            frames += core.journal.frame(
                Kind.ADOPT, run.payload(), rows.topic.id, run.base, run.count, run.ts, 0, ahead_ms
            )
        core.touched.add(rows.topic)
        core.counters.frames += rows.count
    header = {"ts": adoption.members[0].clock_ms}
    if len(adoption.members) == 1:
        # Should the payload rot, the header still tells which seqs went with it.
        only = adoption.members[0]
        assert only.topic is not None
        header |= {"topic_id": only.topic.id, "first_seq": only.first_seq, "count": only.count}
    adoption.buffers = core.journal.frame_of(Kind.GROUP, [*frames, *fact()], **header)
    adoption.is_ready = True
    core.queue.go_on()

"""Seq reservations: no seq is assigned twice, whatever a power failure takes.

A reservation is a journal frame that must be on disk before a seq inside it is acknowledged. Its size doubles
with use, so that a busy topic reserves seldom. The next one is requested before the current one is used up,
so appends of unsynced classes normally do not wait for it.
"""

import msgspec

from topics.core import ApiError
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.operation import Op
from topics.storage import FrameDraft, Kind


class ReserveOp(Op):
    """Extend a reservation in the background. It belongs to no topic's order: no append waits for it."""

    __slots__ = ("reserves_for", "upto")

    def __init__(self, frame: FrameDraft, topic: Topic) -> None:
        super().__init__([frame], None, sync=True)
        self.reserves_for = topic
        self.upto = topic.reserve_asked

    def apply(self) -> None:
        self.reserves_for.reserve(self.upto)

    def withdraw(self) -> None:
        self.reserves_for.withdraw_reservation()

    def fail(self, error: ApiError) -> None:
        return None


def cover(engine: Engine, topic: Topic, last_seq: int, op: Op) -> int:
    """Make `op` wait for a reservation that reaches `last_seq`; return the end of that reservation."""
    op.sync = True
    if last_seq > topic.reserve_asked:
        op.frames.append(_request(engine, topic, last_seq, last_seq - topic.assigned))
    return topic.reserve_asked


def extend_if_short(engine: Engine, topic: Topic) -> None:
    """Request the next reservation if most of the current one is used.

    If there is no room for the request now, the next append makes it.
    """
    if topic.reserve_asked - topic.assigned < topic.reserving >> 2:
        try:
            engine.queue.submit(ReserveOp(_request(engine, topic, topic.assigned), topic))
        except (ApiError, MemoryError):
            # Without this, the next append would assume a reservation that was never journalled.
            topic.withdraw_reservation()


def _request(engine: Engine, topic: Topic, from_seq: int, at_least: int = 0) -> FrameDraft:
    upto = topic.ask_reservation(from_seq, at_least)
    engine.witness.reserved(upto)
    payload = msgspec.msgpack.encode(upto)
    return FrameDraft(Kind.RESERVE, payload, topic_id=topic.id, ts=engine.now())

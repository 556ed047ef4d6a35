"""Seqs are reserved ahead of use, so that a power failure cannot lead to one being handed out twice.

A reservation is a journal frame that must be on disk before a seq inside it is acknowledged. Steps double
with use: a busy topic reserves seldom, an idle one little. The next step is asked for before the current one
is used up, so writers of unsynced classes normally never wait for it.
"""

import msgspec

from topics.log.core import Core
from topics.log.topic import Topic
from topics.log.write.operation import Op
from topics.storage import Kind
from topics.values import ApiError


class ReserveOp(Op):
    """Extends a reservation in the background. It belongs to no topic's order: no write waits behind it."""

    __slots__ = ("reserves_for", "upto")

    def __init__(self, buffers: list[bytes], topic: Topic) -> None:
        super().__init__(buffers, None, sync=True)
        self.reserves_for = topic
        self.upto = topic.reserve_asked

    def apply(self) -> None:
        self.reserves_for.reserve(self.upto)

    def withdraw(self) -> None:
        self.reserves_for.withdraw_reservation()

    def fail(self, error: ApiError) -> None:
        return None


def cover(core: Core, topic: Topic, last_seq: int, op: Op) -> int:
    """Make `op` wait for a reservation that reaches `last_seq`; returns how far it will reach."""
    op.sync = True
    if last_seq > topic.reserve_asked:
        op.buffers += _ask(core, topic, last_seq, last_seq - topic.assigned)
    return topic.reserve_asked


def extend_if_short(core: Core, topic: Topic) -> None:
    if topic.reserve_asked - topic.assigned < topic.reserving >> 2:
        try:
            core.queue.submit(ReserveOp(_ask(core, topic, topic.assigned), topic))
        except (ApiError, MemoryError):
            # Otherwise the next write would take for asked what no frame asks for.
            topic.withdraw_reservation()
            raise


def _ask(core: Core, topic: Topic, from_seq: int, at_least: int = 0) -> list[bytes]:
    upto = topic.ask_reservation(from_seq, at_least)
    core.witness.reserved(upto)
    payload = msgspec.msgpack.encode(upto)
    return core.journal.frame(Kind.RESERVE, payload, topic_id=topic.id, ts=core.now())

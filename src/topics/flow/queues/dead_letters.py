"""Jobs that were delivered too often move to another topic: appended there and deleted here by one commit.

Both frames are one write, the new copy first. A journal torn between them leaves the job in both places,
where somebody may handle it twice; it is never in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.flow.queues.jobs import read_records
from topics.log.lifecycle import create_topic
from topics.log.remove.deletion import Selector
from topics.log.topic import Topic
from topics.log.write.append import AppendOp, append_batch
from topics.log.write.batch import Batch, batch_from_columns
from topics.storage.columns import Records
from topics.storage.frame import Kind
from topics.values.config import DEFAULT_CONFIG
from topics.values.errors import ApiError

if TYPE_CHECKING:
    from topics.flow.queues.queue import JobQueue

# Jobs that one claim moves at most; the next claim goes on with the rest.
MAX_MOVES = 1000
_META_PREFIX = "$dead_letter_"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def move_overdue(queue: JobQueue, finished: Callable[[], None]) -> None:
    """Move what is overdue. What the other topic has no room for stays where it is, claimable."""
    moves = _Moves(finished)
    # Where the whole lot is refused, part of it may fit; and one job a claim finds out when there is room.
    together = 1 if queue.letters_refused else MAX_MOVES
    room = MAX_MOVES
    queue.letters_refused = False
    while queue.table.overdue and room > 0:
        taken = _move(queue, min(together, room), moves)
        room -= taken
        if not taken and together == 1:
            queue.letters_refused = True
            break
        if not taken:
            together = 1
    moves.one_finished()


def _move(queue: JobQueue, limit: int, moves: _Moves) -> int:
    """Try to move the lowest `limit` jobs as one; returns how many were accepted."""
    taken = queue.table.take_overdue(limit)
    letters = read_records(queue.topic, taken)
    if len(letters):
        try:
            _Move(queue, letters, moves.one_finished).submit()
        except ApiError:
            queue.table.put_back_overdue(taken)
            return 0
        moves.waiting += 1
    return len(taken)


class _Moves:
    """Counts commits on their way; the claim that caused them is answered after the last one."""

    def __init__(self, finished: Callable[[], None]) -> None:
        self.waiting = 1
        self._finished = finished

    def one_finished(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._finished()


class _Move:
    """One commit: an append to the dead letters, and the deletion from the queue."""

    def __init__(self, queue: JobQueue, letters: Records, finished: Callable[[], None]) -> None:
        self._queue = queue
        self._seqs: list[int] = letters.seqs.tolist()
        self._batch = _batch(queue.topic, letters)
        self._finished = finished
        self._selector = Selector(queue.topic.assigned + 1, seqs=self._seqs)
        self._lines = queue.topic.cap_hi, queue.topic.ttl_hi
        self._ts = queue.engine.now()

    def submit(self) -> None:
        """Raises before anything changed when the other topic refuses."""
        engine, topic = self._queue.engine, self._queue.topic
        target = self._target()
        op = AppendOp(engine, target, self._batch, self._ts)
        op.others = (topic,)
        op.sync = topic.config.durability == "fsync"
        op.on_done = self._moved
        op.on_error = self._failed
        append_batch(engine, target, self._batch, op)
        # Submitted is not written yet: what is added now goes out in the same write.
        op.buffers += engine.journal.frame(
            Kind.DEAD_LETTER,
            msgspec.msgpack.encode(self._selector),
            topic_id=topic.id,
            count=len(self._seqs),
            ts=self._ts,
        )

    def _target(self) -> Topic:
        engine, topic = self._queue.engine, self._queue.topic
        name = topic.config.dead_letter
        assert name is not None
        target = engine.by_name.get(name)
        if target is None:
            target = create_topic(engine, name, DEFAULT_CONFIG, lambda: None, lambda _: None)
        return target

    def _moved(self, op: AppendOp) -> None:
        queue = self._queue
        deleted = queue.engine.apply_delete(queue.topic, self._selector, self._ts)
        queue.engine.note_moved_lines(queue.topic, *self._lines)
        queue.finish(self._seqs, deleted)
        queue.dead_lettered += len(self._seqs)
        self._finished()

    def _failed(self, error: ApiError) -> None:
        self._queue.table.put_back_overdue(self._seqs)
        self._finished()


def _batch(topic: Topic, letters: Records) -> Batch:
    deliveries = topic.config.max_deliveries
    metas = letters.metas or [None] * len(letters)
    origins: list[bytes | None] = [
        _with_origin(meta, topic.name, deliveries, seq)
        for meta, seq in zip(metas, letters.seqs.tolist(), strict=True)
    ]
    return batch_from_columns(letters.data, origins, letters.nodes, letters.tags)


def _with_origin(meta: bytes | None, name: str, deliveries: int, seq: int) -> bytes:
    """The job's own meta, and where it came from. The rest of the meta stays as it was written."""
    origin = msgspec.json.encode(
        {
            _META_PREFIX + "from": name,
            _META_PREFIX + "deliveries": str(deliveries),
            _META_PREFIX + "src_seq": str(seq),
        }
    )
    if meta is None or meta == b"{}":
        return origin
    # A letter that dies a second time tells of its last queue only. Escapes may hide such a key.
    if _META_PREFIX.encode() in meta or b"\\" in meta:
        fields = _fields.decode(meta)
        for key in _fields.decode(origin):
            fields.pop(key, None)
        meta = msgspec.json.encode(fields)
        if not fields:
            return origin
    return meta[:-1] + b"," + origin[1:]

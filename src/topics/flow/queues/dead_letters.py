"""Jobs that were delivered too often move to another topic: appended there and deleted here by one group.

The journal has both in one frame, so a job is in exactly one of the two places, whatever happens on the way.
"""

from collections.abc import Callable, Mapping

import msgspec

from topics import codec
from topics.codec import Write
from topics.core import DEFAULT_CONFIG, MAX_META_BYTES, MAX_META_KEYS, ApiError
from topics.flow.queues.jobs import read_records
from topics.flow.queues.leases import LeaseTable
from topics.log import (
    AppendOp,
    Engine,
    Selector,
    Topic,
    append_group,
    apply_delete,
    create_topic,
)
from topics.storage import FrameDraft, Kind, Records

# Jobs that one claim moves at most; the next claim goes on with the rest.
MAX_MOVES = 1000
_META_PREFIX = "$dead_letter_"
_FROM = _META_PREFIX + "from"
_DELIVERIES = _META_PREFIX + "deliveries"
_SRC_SEQ = _META_PREFIX + "src_seq"
# What the worker that gave the job back last said about it; others may have said nothing.
_ERROR = _META_PREFIX + "error"
# What these keys said before, this one among them: the job was a letter already, or its writer had used them.
_BEFORE = _META_PREFIX + "before"
_TOLD = (_FROM, _DELIVERIES, _SRC_SEQ, _ERROR, _BEFORE)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DeadLetters:
    """The way out of one queue."""

    def __init__(self, engine: Engine, queue: Topic, finish: Callable[[list[int], int], None]) -> None:
        """`finish` is told which jobs have left the queue, and how many records were deleted with them."""
        self._engine = engine
        self._queue = queue
        self._finish = finish
        # Jobs moved since the queue was created.
        self.count = 0
        # The other topic had no room when it was last asked.
        self._refused = False

    def move_overdue(self, table: LeaseTable, finished: Callable[[], None]) -> None:
        """Move what is overdue. What the other topic has no room for stays where it is, claimable."""
        under_way = 1

        def one_finished() -> None:
            nonlocal under_way
            under_way -= 1
            if not under_way:
                finished()

        # Where all are refused, some may fit; and one job a claim is enough to find out when there is room.
        together = 1 if self._refused else MAX_MOVES
        left = MAX_MOVES
        self._refused = False
        while table.overdue and left > 0 and not self._refused:
            taken = table.take_overdue(min(together, left))
            letters = read_records(self._queue, taken)
            try:
                if len(letters):
                    self._move(table, letters, one_finished)
                    under_way += 1
                left -= len(taken)
            except ApiError:
                table.put_back_overdue(taken)
                self._refused = together == 1
                together = 1
            except Exception:
                # A defect. Whatever it is, no worker is to miss them.
                table.put_back_overdue(taken)
                raise
        one_finished()

    def _move(self, table: LeaseTable, letters: Records, finished: Callable[[], None]) -> None:
        """Raises before anything changed when the other topic refuses."""
        engine, queue = self._engine, self._queue
        seqs: list[int] = letters.seqs.tolist()
        now = engine.now()
        selector = Selector(queue.assigned + 1, seqs=seqs)
        lines = queue.cap_hi, queue.ttl_hi

        def leave(_: list[AppendOp]) -> FrameDraft:
            payload = msgspec.msgpack.encode(selector)
            return FrameDraft(Kind.DEAD_LETTER, payload, topic_id=queue.id, count=len(seqs), ts=now)

        def moved() -> None:
            deleted = apply_delete(queue, selector, now)
            engine.note_moved_lines(queue, *lines)
            self._finish(seqs, deleted)
            self.count += len(seqs)
            finished()

        def failed(_: ApiError) -> None:
            table.put_back_overdue(seqs)
            finished()

        write = _records_of(queue, letters, table.errors)
        sync = queue.config.durability == "fsync"
        append_group(
            engine, [(self._target(), [write])], now, leave, moved, failed, sync=sync, others=(queue,)
        )

    def _target(self) -> Topic:
        name = self._queue.config.dead_letter
        assert name is not None
        target = self._engine.by_name.get(name)
        if target is None:
            target = create_topic(self._engine, name, DEFAULT_CONFIG, lambda: None, lambda _: None)
        return target


def _records_of(topic: Topic, letters: Records, errors: Mapping[int, str]) -> Write:
    deliveries = topic.config.max_deliveries
    metas = letters.metas or [None] * len(letters)
    origins: list[bytes | None] = [
        _with_origin(meta, topic.name, deliveries, seq, errors.get(seq))
        for meta, seq in zip(metas, letters.seqs.tolist(), strict=True)
    ]
    return codec.from_values(letters.data, origins, letters.nodes, letters.tags)


def origin_of(meta: bytes | None) -> str | None:
    """The queue that a letter came from, as far as its meta says so."""
    if meta is None or not _may_have_origin(meta):
        return None
    name = (_fields_of(meta) or {}).get(_FROM)
    if name is None or bytes(name)[:1] != b'"':
        return None
    found: str = msgspec.json.decode(name)
    return found


def without_origin(meta: bytes | None) -> bytes | None:
    """The meta that the job had before it became a letter."""
    if meta is None or not _may_have_origin(meta):
        return meta
    fields = _fields_of(meta)
    if fields is None:
        return meta
    before = _take_told(fields).get(_BEFORE)
    told = {} if before is None else _told_before(bytes(before))
    if len(fields) + len(told) <= MAX_META_KEYS:
        fields |= told
    return msgspec.json.encode(fields) if fields else None


def _may_have_origin(meta: bytes) -> bool:
    """Escapes may hide such a key."""
    return _META_PREFIX.encode() in meta or b"\\" in meta


def _fields_of(meta: bytes) -> dict[str, msgspec.Raw] | None:
    """None if values are nested too deeply to be passed over: one that was taken may be so one level down."""
    try:
        return _fields.decode(meta)
    except RecursionError:
        return None


def _take_told(fields: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """What a meta says of a letter; it is no longer in the meta then."""
    return {key: fields.pop(key) for key in _TOLD if key in fields}


def _told_before(before: bytes) -> dict[str, msgspec.Raw]:
    """Nothing else comes out of it, whoever wrote it."""
    if before[:1] != b"{":
        return {}
    return {key: value for key, value in _fields.decode(before).items() if key in _TOLD}


def _with_origin(meta: bytes | None, name: str, deliveries: int, seq: int, error: str | None) -> bytes:
    """The job's own meta, and where it came from. The rest of the meta stays as it was written."""
    told = {_FROM: name, _DELIVERIES: str(deliveries), _SRC_SEQ: str(seq)}
    if error is not None:
        told[_ERROR] = error
    origin = msgspec.json.encode(told)
    if meta is None or meta == b"{}":
        return origin
    fields = _fields_of(meta) if _may_have_origin(meta) else None
    if fields is None:
        return meta[:-1] + b"," + origin[1:]
    earlier = _take_told(fields)
    letter: dict[str, object] = {**fields, **told}
    if earlier and len(letter) < MAX_META_KEYS:
        whole = msgspec.json.encode(letter | {_BEFORE: earlier})
        if len(whole) <= MAX_META_BYTES and _fields_of(whole) is not None:
            return whole
    # What was told before does not fit into a meta any more: the letter tells of its last queue only.
    return msgspec.json.encode(letter)

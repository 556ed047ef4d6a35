"""Jobs that were delivered too often move to another topic, and back by a redrive.

A move appends to one topic and deletes from the other. The journal has both in one frame, so a job is in
exactly one of the two places at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from topics import codec
from topics.codec import Write
from topics.core import (
    DEFAULT_CONFIG,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_READ_BYTES,
    ApiError,
    topic_not_found,
)
from topics.flow.queues.jobs import live_from, read_jobs, read_records
from topics.flow.queues.leases import LeaseTable
from topics.log import (
    Engine,
    Fail,
    Selector,
    TagMatch,
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
        queue = self._queue
        seqs: list[int] = letters.seqs.tolist()

        def moved(deleted: int) -> None:
            self._finish(seqs, deleted)
            self.count += len(seqs)
            finished()

        def failed(_: ApiError) -> None:
            table.put_back_overdue(seqs)
            finished()

        metas: list[bytes | None] = [
            _with_origin(meta, queue.name, queue.config.max_deliveries, seq, table.errors.get(seq))
            for meta, seq in zip(letters.metas or [None] * len(letters), seqs, strict=True)
        ]
        write = codec.from_values(letters.data, metas, letters.names)
        _move(self._engine, queue, self._target(), seqs, write, Kind.DEAD_LETTER, moved, failed)

    def _target(self) -> Topic:
        name = self._queue.config.dead_letter
        assert name is not None
        target = self._engine.by_name.get(name)
        if target is None:
            target = create_topic(self._engine, name, DEFAULT_CONFIG, lambda: None, lambda _: None)
        return target


def _move(
    engine: Engine,
    source: Topic,
    target: Topic,
    seqs: list[int],
    write: Write,
    kind: Kind,
    moved: Callable[[int], None],
    failed: Fail,
) -> None:
    """Append `write` to `target` and delete these records of `source`, with one frame.

    `moved` gets the number of deleted records. Raises before anything changed when the target refuses.
    """
    now = engine.now()
    selector = Selector(source.assigned + 1, seqs=seqs)
    lines = source.cap_hi, source.ttl_hi

    def leave(_: object) -> FrameDraft:
        payload = msgspec.msgpack.encode(selector)
        count = len(seqs) if kind is Kind.DEAD_LETTER else 0
        return FrameDraft(kind, payload, topic_id=source.id, count=count, ts=now)

    def apply() -> None:
        deleted = apply_delete(source, selector, now)
        engine.note_moved_lines(source, *lines)
        moved(deleted)

    sync = source.config.durability == "fsync"
    append_group(engine, [(target, [write])], now, leave, apply, failed, sync=sync, others=(source,))


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
    before = bytes(_take_told(fields).get(_BEFORE, b""))
    told = {}
    if before[:1] == b"{":
        # Whoever wrote it: only what a letter tells comes out of it.
        told = {key: value for key, value in _fields.decode(before).items() if key in _TOLD}
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


# Letters that are looked at before others have their turn, and in all.
STEP_LETTERS = 1000
MOST_LETTERS = 100_000


@dataclass(slots=True)
class LetterBatch:
    """Letters that go to one queue."""

    target: Topic
    letters: Records

    @property
    def size(self) -> int:
        return sum(map(len, self.letters.data))


class Redrive:
    """One walk through the letters that were there when it began."""

    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        moving: set[int],
        find_target: Callable[[str | None], Topic | None],
        most: int | None = None,
        match: TagMatch | None = None,
    ) -> None:
        """`find_target` knows the queue for a letter of this origin; without one, the letter stays.

        `moving`: seqs of this topic that are on their way already, by this walk or another.
        """
        self.moved = 0
        self.skipped: list[int] = []
        self._engine = engine
        self._topic = topic
        self._moving = moving
        self._find_target = find_target
        self._left = MOST_LETTERS if most is None else most
        self._match = match
        self._next = topic.floor
        self._stop_before = topic.head + 1
        self._looked_at = 0

    @property
    def is_over(self) -> bool:
        spent = not self._left or self._looked_at >= MOST_LETTERS
        return spent or self._topic.dropped or self._next >= self._stop_before

    @property
    def has_more(self) -> bool:
        """There are letters that were not looked at."""
        return bool(live_from(self._topic, self._next, 1, self._stop_before))

    def step(self) -> list[LetterBatch]:
        """The next letters, by where they go. Each part has to be moved."""
        topic = self._topic
        self._engine.refresh(topic)
        seqs = live_from(topic, self._next, min(STEP_LETTERS, self._left), self._stop_before)
        jobs = read_jobs(topic, seqs, MAX_READ_BYTES) if seqs else []
        self._looked_at += len(jobs)
        self._next = jobs[-1].seq + 1 if jobs else self._stop_before
        letters = read_records(topic, [job.seq for job in jobs])
        held = self._held() | self._moving
        by_target: dict[Topic, list[int]] = {}
        nothing = [None] * len(letters)
        told = zip(letters.seqs.tolist(), letters.tags or nothing, letters.metas or nothing, strict=True)
        for index, (seq, tag, meta) in enumerate(told):
            if self._match is not None and not self._match.matches(tag):
                continue
            target = self._find_target(origin_of(meta))
            if target is None or seq in held:
                self.skipped.append(seq)
            else:
                by_target.setdefault(target, []).append(index)
        parts = [
            LetterBatch(target, letters.take(np.array(indexes))) for target, indexes in by_target.items()
        ]
        self._left -= sum(len(part.letters) for part in parts)
        return parts

    def _held(self) -> set[int]:
        """Where letters are jobs themselves: a worker has some of them."""
        if not self._topic.config.is_queue:
            return set()
        queue = self._topic.extension
        queue.refresh()
        return {*queue.table.leases, *queue.table.moving}

    def move(self, part: LetterBatch, done: Callable[[], None], fail: Fail) -> None:
        """Raises before anything changed when the queue refuses."""
        engine, topic, letters = self._engine, self._topic, part.letters
        if engine.by_name.get(part.target.name) is not part.target:
            raise topic_not_found(part.target.name)
        seqs: list[int] = letters.seqs.tolist()

        def moved(_: int) -> None:
            self._moving.difference_update(seqs)
            self.moved += len(seqs)
            done()

        def failed(error: ApiError) -> None:
            self._moving.difference_update(seqs)
            fail(error)

        metas = None if letters.metas is None else [without_origin(meta) for meta in letters.metas]
        write = codec.from_values(letters.data, metas, letters.names)
        self._moving.update(seqs)
        try:
            _move(engine, topic, part.target, seqs, write, Kind.DELETE, moved, failed)
        except ApiError:
            self._moving.difference_update(seqs)
            raise

"""Appends that are too large for the journal: a small frame imports segments that hold their records.

    begin_import (seqs are assigned)  ─▶  segments are written and synced, on any thread  ─▶  finish_import

Nothing refers to the segments before that frame: a crash leaves files that the next start removes. Until the
import is finished or abandoned, the commit queue holds back later operations of the same topics, and nothing
else. Records of class ephemeral are imported in the same way, from memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from topics import codec
from topics.codec import Write
from topics.core import MAX_BATCH_RECORDS, MAX_BULK_RECORDS
from topics.log.engine import Engine
from topics.log.run import HotColumns, Run
from topics.log.topic import Topic
from topics.log.write.append import Append, AppendOp, Taken
from topics.log.write.group import Amount, GroupOp, admit_group
from topics.log.write.operation import Fail
from topics.log.write.reservation import cover
from topics.storage import Frame, FrameDraft, Kind, SegmentWriter

_pair = msgspec.msgpack.Decoder(tuple[int, int])
# A file of about this size is worth its open and its sync.
FILE_BYTES = 32 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class ImportedRun:
    """A run in a segment, all of whose records have the same time. `size`: of their data and meta."""

    base: int
    count: int
    size: int
    ts: int
    segment: int

    def payload(self) -> bytes:
        """The payload of its frame; the header has the other fields."""
        return msgspec.msgpack.encode((self.segment, self.size))

    def run(self, topic_id: int) -> Run:
        """The run as it becomes visible: nothing of it is deleted, and none of it is in memory."""
        return Run(
            topic_id,
            self.base,
            None,
            framed=False,
            count=self.count,
            live_count=self.count,
            live_bytes=self.size,
            first_ts=self.ts,
            last_ts=self.ts,
        )


def decode_import(frame: Frame) -> ImportedRun:
    segment, size = _pair.decode(frame.payload)
    return ImportedRun(frame.first_seq, frame.count, size, frame.ts, segment)


class ImportPart(AppendOp):
    """The records that one topic gets; its runs are known when the segments are written."""

    __slots__ = ("is_kept", "runs", "runs_in_memory", "taken")

    def __init__(self, engine: Engine, amount: Amount, now: int) -> None:
        super().__init__(engine, amount.topic, now)
        self.count, self.size = amount.count, amount.size
        self.is_kept = amount.topic.config.durability != "ephemeral"
        self.runs: list[ImportedRun] = []
        # Of class ephemeral.
        self.runs_in_memory: list[Run] = []
        # Idempotency keys of the request, if it has some.
        self.taken: Taken = {}

    def publish(self) -> None:
        for imported in self.runs:
            self.topic.import_run(imported.run(self.topic.id), imported.segment)
        for run in self.runs_in_memory:
            self.topic.import_run(run)
        super().publish()

    def encode_into(self, run: Run, write: Write, first_seq: int) -> int:
        """Add records to a run that is not visible; return by how much it has grown. On any thread."""
        return run.extend(codec.encode([write], first_seq, self.ts))

    def begin(self, created_by: Append | None, digest: bytes | None) -> None:
        """Take what the request brings: the topic it has created, and the digest of its idempotency key.

        Repeated requests wait for this import from here on.
        """
        self.created_by = created_by
        if digest is not None:
            self.taken = {digest: (self.first_seq, self.count)}
            self.keys = self.engine.keys.of(self.topic)
            self.keys.remember(self.taken, self.clock_ms)

    def import_frames(self) -> list[FrameDraft]:
        """The frames that make the records exist."""
        topic = self.topic
        ahead_ms = self.ts - self.clock_ms
        frames = list(self.frames)
        if not self.is_kept:
            advance = FrameDraft(
                Kind.ADVANCE, b"", topic.id, self.first_seq, self.count, self.ts, 0, ahead_ms
            )
            return [*frames, advance]
        frames.extend(
            FrameDraft(Kind.ADOPT, run.payload(), topic.id, run.base, run.count, run.ts, 0, ahead_ms)
            for run in self.runs
        )
        if self.taken:
            # A keyed append of no records, after those that its keys stand for.
            assert self.keys is not None
            payload = self.keys.encoded(self.taken, self.first_seq)
            frames.append(FrameDraft(Kind.KEYED, payload, topic.id, self.first_seq, 0, self.ts, 0, ahead_ms))
        return frames


class ImportOp(GroupOp):
    """An import has its place in the order of its topics from the beginning, and its frame at the end."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[ImportPart], on_done: Callable[[], None], on_error: Fail) -> None:
        super().__init__(on_done, on_error, sync=True)
        self.parts = parts
        self.members.extend(parts)
        self.others = tuple(part.topic for part in parts)

    @property
    def is_ready(self) -> bool:
        return bool(self.frames)

    def get_ready(self, frame: FrameDraft) -> None:
        self.frames = [frame]


def begin_import(
    engine: Engine, amounts: Sequence[Amount], now: int, on_done: Callable[[], None], on_error: Fail
) -> ImportOp:
    """Assign seqs and hold back what follows. Raises before anything has changed when it is refused."""
    engine.queue.assign_pending()
    room = 1 + len(amounts)
    engine.queue.require_growth(room)
    admit_group(engine, amounts, now)
    # Expiry may have found out meanwhile that the disk is full.
    engine.queue.require_growth(room)
    parts = [ImportPart(engine, amount, now) for amount in amounts]
    for part in parts:
        topic = part.topic
        if part.last_seq > topic.reserved:
            part.reserve_to = cover(engine, topic, part.last_seq, part)
        topic.assign_ahead(part.count, part.size, part.ts)
    operation = ImportOp(parts, on_done, on_error)
    engine.queue.submit(operation)
    return operation


def finish_import(engine: Engine, operation: ImportOp, fact: Callable[[], FrameDraft | None]) -> None:
    """Let the import be committed: its segments are on disk, names included.

    `fact` returns a frame that is committed with the records, if there is one.
    """
    frames = [frame for part in operation.parts for frame in part.import_frames()]
    told = fact()
    if told is not None:
        frames.append(told)
    for part in operation.parts:
        engine.note_written(part.topic, part.count)
    header = {"ts": operation.parts[0].clock_ms}
    if len(operation.parts) == 1:
        # If the payload is damaged, the header still has the seqs.
        only = operation.parts[0]
        header |= {"topic_id": only.topic.id, "first_seq": only.first_seq, "count": only.count}
    operation.get_ready(FrameDraft(Kind.GROUP, frames, **header))
    engine.queue.go_on()


@dataclass(slots=True)
class _Open:
    """The part of a topic that is being written: the next seq, and the run that takes it."""

    part: ImportPart
    next_seq: int
    run: Run | None = None


@dataclass(slots=True)
class ImportFiles:
    """The segments of one import. Its methods run one after the other, on any thread."""

    engine: Engine
    operation: ImportOp
    numbers: list[int] = field(default_factory=list)
    _open: dict[Topic, _Open] = field(init=False)
    _full: list[tuple[ImportPart, Run]] = field(default_factory=list)
    _full_bytes: int = 0
    _open_bytes: int = 0

    def __post_init__(self) -> None:
        self._open = {part.topic: _Open(part, part.first_seq) for part in self.operation.parts}

    def fill(self, pieces: Iterator[tuple[Topic, Write]]) -> bool:
        """Encode records until there are enough for a file; False when there are no more."""
        for topic, write in pieces:
            self._add(self._open[topic], write)
            if self._full_bytes + self._open_bytes >= FILE_BYTES:
                return True
        return False

    def _add(self, target: _Open, write: Write) -> None:
        unsealed = self.engine.store.unsealed
        part, run = target.part, target.run
        if run is None:
            base = target.next_seq
            run = Run(part.topic.id, base, HotColumns(base), ephemeral=not part.is_kept, framed=False)
        self._open_bytes += part.encode_into(run, write, target.next_seq)
        target.next_seq += write.count
        hot = run.hot
        assert hot is not None
        # With the records that a run already has, no frame has more than any other.
        max_events = min(unsealed.max_events, MAX_BULK_RECORDS - MAX_BATCH_RECORDS)
        is_full = run.count >= max_events or hot.size >= unsealed.max_bytes
        target.run = None if is_full else run
        if is_full:
            self._full.append((part, run))
            self._open_bytes -= hot.weight
            self._full_bytes += hot.weight

    def write(self, number: int, *, is_last: bool) -> None:
        """Write the full runs, and the open ones if this is the last file or if they are most of it."""
        chosen, self._full = self._full, []
        self._full_bytes = 0
        if is_last or self._open_bytes >= FILE_BYTES // 2:
            chosen += [(each.part, each.run) for each in self._open.values() if each.run is not None]
            for each in self._open.values():
                each.run = None
            self._open_bytes = 0
        in_memory = [(part, run) for part, run in chosen if not part.is_kept]
        for part, run in in_memory:
            part.runs_in_memory.append(run)
        kept = [(part, run) for part, run in chosen if part.is_kept]
        if not kept:
            return
        engine = self.engine
        engine.require_home(engine.dirs.segments)
        writer = SegmentWriter(number)
        for part, run in kept:
            assert run.hot is not None
            writer.add(part.topic.id, run.hot.view(), None)
        self.numbers.append(number)
        writer.write(engine.fs, engine.dirs.segments, number)
        for part, run in kept:
            part.runs.append(ImportedRun(run.base, run.count, run.live_bytes, run.last_ts, number))

    def sync(self) -> None:
        """Make the names of the files durable."""
        if self.numbers:
            self.engine.fs.sync_dir(self.engine.dirs.segments)

    def remove(self) -> None:
        for number in self.numbers:
            self.engine.fs.remove(self.engine.store.path(number))

    def leave(self) -> None:
        """On the loop: let a later checkpoint remove the files."""
        for number in self.numbers:
            self.engine.store.note_file(number)

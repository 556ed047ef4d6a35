"""The engine of one log: all topics by name and id, the journal, the commit queue, and the time.

Operations on records are functions of an engine and live in the room of what they do (`write`, `read`,
`remove`). One thread owns the engine. An operation is checked, journalled through the commit queue, and takes
effect when it is committed; callers pass callbacks, because that is later than the call.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from topics.core import (
    MAX_HOPS,
    NS_PER_MS,
    Clock,
    InvariantViolated,
    Settings,
    WritesOff,
    effective_priority,
    moment,
    topic_not_found,
)
from topics.log.clock import ClockLead, ClockMark, ShownTime
from topics.log.extension import Extension
from topics.log.lives import Lives
from topics.log.remove.removal import expire
from topics.log.run import Unsealed
from topics.log.seal.segment_store import SegmentStore
from topics.log.topic import Topic, Totals
from topics.log.write.all_keys import AllKeys
from topics.log.write.commit_queue import CommitQueue, Counters
from topics.log.write.operation import CallbackOp
from topics.storage import (
    ROTATE_BYTES,
    Ahead,
    Directories,
    Filesystem,
    FrameDraft,
    Journal,
    Kind,
    Reserve,
    SnapshotStore,
    Witness,
)

if TYPE_CHECKING:
    from topics.log.write.append import Append

log = logging.getLogger("topics")


class Engine:
    # Append the records of a request, together with all that this turn of the event loop brings.
    append: Callable[["Append"], None]

    def __init__(self, settings: Settings, fs: Filesystem, clock: Clock) -> None:
        self.settings = settings
        self.fs = fs
        self.dirs = Directories(settings.data_dir)
        # Raises when a path does not lead any more to the directory that was opened: called on any thread,
        # before files there are made or removed.
        self.require_home: Callable[[str], None] = lambda _: None
        for path in (self.dirs.journal, self.dirs.segments, self.dirs.snapshots):
            fs.make_dirs(path)
        if settings.cold_dir:
            fs.make_dirs(settings.cold_dir)
        unsealed = Unsealed(settings.segment_max_events, settings.seal_bytes)
        self.store = SegmentStore(fs, self.dirs.segments, settings.cold_dir, unsealed)
        self.snapshots = SnapshotStore(fs, self.dirs.snapshots)
        self.ahead = Ahead(fs, self.dirs.journal)
        self.reserve = Reserve(fs, self.dirs.root, self.ahead)
        self.witness = Witness(fs, self.dirs.root)
        self.shown_time = ShownTime(clock, self.witness)
        # Whatever happens in the log happens at this time, in milliseconds.
        self.now = self.shown_time.now_ms
        self._steady_ns = clock.steady_ns
        # When the log was opened, by both clocks.
        self.opened_ms, self.opened_steady_ms = clock.now_ns() // NS_PER_MS, self.steady_ms()
        self.totals = Totals(self.now)
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.sorted_names: list[str] = []
        self.next_topic_id = 1
        self.next_segment = 1
        self.lives = Lives(lambda: self.by_id)
        salt = bytes.fromhex(fs.new_identity())
        self.keys = AllKeys(settings, salt, lambda topic_id: self.by_id.get(topic_id))
        self.extensions: list[Extension] = [self.lives, self.keys]
        # Told of every topic that is there to be seen for the first time.
        self.on_shown: list[Callable[[Topic], None]] = []
        # Topics that routers fed before this start: a small frame may assign many of their seqs.
        self.derived: set[int] = set()
        # Topics written since the current journal file began; their heads close it.
        self.touched: set[Topic] = set()
        # Topics whose loss lines the journal should know, and had no room for.
        self.owed_lines: set[Topic] = set()
        self.clock_mark = ClockMark()
        self.clock_lead = ClockLead(clock, self.shown_time, self.by_id)
        self.journal: Journal = None  # type: ignore[assignment]  # set when recovery is over
        self.queue: CommitQueue = None  # type: ignore[assignment]
        self.counters = Counters()
        # The rest of the start, if there was no room for it.
        self._finish_start: Callable[[], bool] | None = None
        # Until then, all of it belongs to the thread that recovers it.
        self.recovered = False

    # --- time -------------------------------------------------------------------------------------------

    def steady_ms(self) -> int:
        """For how long something lasts within this run, whatever becomes of the clock."""
        return self._steady_ns() // NS_PER_MS

    def note_read(self, topic: Topic) -> None:
        """A reader asks for records of the topic now, and so for those that they are copies of."""
        steady_ms = self._steady_ns() // NS_PER_MS
        topic.read_at(self.now(), steady_ms)
        source = topic.source
        # No copy comes from further away, however long the chain of routers is, or if it is a circle.
        for _ in range(MAX_HOPS):
            if source is None:
                break
            source.copies_read_at(steady_ms)
            source = source.source

    def priority_of(self, topic: Topic) -> int:
        """By how long ago it was read, unless it has one of its own."""
        return effective_priority(topic.config, topic.last_read_steady_ms, self.steady_ms())

    def priority_of_writers(self, topic: Topic) -> int:
        """The same of those who write to it: whoever reads its copies waits for them, too."""
        read_ms, copies_ms = topic.last_read_steady_ms, topic.copies_read_steady_ms
        if copies_ms is not None and (read_ms is None or copies_ms > read_ms):
            read_ms = copies_ms
        return effective_priority(topic.config, read_ms, self.steady_ms())

    def forget_later_times(self, shown_ms: int, now_ms: int) -> None:
        """The clock was set back, and the journal knows: from what was shown to this."""
        self.clock_mark.set_back(now_ms)
        self.keys.set_back(shown_ms, now_ms)

    def expire_all(self, now: int) -> None:
        """Let age take what it takes in all topics. A violation ends writing."""
        # A copy: when writing ends, topics that are being created go.
        for topic in tuple(self.by_name.values()):
            if topic.config.ttl_ms:
                self._expire(topic, now)

    def _expire(self, topic: Topic, now: int) -> None:
        try:
            expire(topic, now)
        except InvariantViolated as error:
            if not self.recovered:
                raise
            self.queue.give_up(error)

    def note_written(self, topic: Topic, count: int) -> None:
        """Count records that the journal gets. Its file will end with the head of their topic."""
        self.touched.add(topic)
        self.counters.frames += count

    def take_segment_number(self) -> int:
        """The number of the next segment file."""
        number = self.next_segment
        self.next_segment += 1
        return number

    # --- finding ----------------------------------------------------------------------------------------

    def find(self, name: str) -> Topic | None:
        """A committed topic, or None; a creation still on its way to disk is not shown."""
        topic = self.by_name.get(name)
        return topic if topic is not None and topic.committed else None

    def require(self, name: str) -> Topic:
        topic = self.find(name)
        if topic is None:
            raise topic_not_found(name)
        return topic

    def names_after(self, after: str, prefix: str) -> Iterator[str]:
        """Committed names with a prefix, ascending, strictly above `after` (empty: from the start)."""
        names = self.sorted_names
        index = bisect_right(names, after) if after >= prefix and after else bisect_left(names, prefix)
        while index < len(names) and names[index].startswith(prefix):
            yield names[index]
            index += 1

    def refresh(self, topic: Topic) -> None:
        """Let time have its effect before anything is said about the topic."""
        if topic.config.ttl_ms:
            self._expire(topic, self.now())
            if topic.ttl_unnoted and self.recovered and self.queue.refusals.failure is None:
                # A reader is about to be told why they are gone; that has to stay the reason.
                self.note_lines(topic)

    # --- loss lines -------------------------------------------------------------------------------------

    def note_lines(self, topic: Topic) -> None:
        """Journal the loss lines themselves, for once: replay would not find them again."""
        lines = msgspec.msgpack.encode((topic.cap_hi, topic.ttl_hi))
        if self.queue.note([FrameDraft(Kind.LINES, lines, topic_id=topic.id, ts=self.now())]):
            topic.lines_noted()
        else:
            self.owed_lines.add(topic)

    def note_moved_lines(self, topic: Topic, cap_hi: int, ttl_hi: int) -> None:
        """After an operation that was ordered when the lines stood as given.

        Replay applies it at the time it was ordered. A reader who came while it waited for the disk may
        have been shown more; and caps depend on ephemeral records, which replay does not have.
        """
        if topic.ttl_hi != ttl_hi or (topic.mixed and topic.cap_hi != cap_hi):
            self.note_lines(topic)

    # --- writing ----------------------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """True once a commit failed: reads go on, writes are off until restart."""
        return self.writes_off not in (None, WritesOff.DISK_FULL)

    @property
    def writes_off(self) -> WritesOff | None:
        """Why no writes are taken; None while they are, and while it is not known yet."""
        return self.queue.refusals.off if self.recovered else None

    def end_writes(self, off: WritesOff, why: str) -> None:
        """Nothing is acknowledged from now on until a restart, also what is on its way. Reads go on."""
        self.queue.refusals.end(off, why)

    def hold_until(self, finish_start: Callable[[], bool]) -> None:
        """There was no room for the last of what a start writes: reads are served, and all else waits."""
        self._finish_start = finish_start
        self.queue.refusals.hold()

    def resume_writes(self) -> None:
        """There is room on the disk again: what is owed to the journal goes first."""
        self.queue.refusals.try_again()
        if self._finish_start is not None:
            if not self._finish_start():
                return
            self._finish_start = None
            self.queue.refusals.let_go()
        self.clock_mark.catch_up()
        for topic in tuple(self.owed_lines):
            self.owed_lines.discard(topic)
            if not topic.dropped:
                self.note_lines(topic)
        if not self.queue.refusals.is_stuck:
            self.queue.refusals.resume()

    @property
    def queue_depth(self) -> int:
        return self.queue.depth if self.recovered else 0

    @property
    def open_group(self) -> int:
        """The group that writes gather for; 0 while there are none."""
        return self.queue.group if self.queue_depth else 0

    # --- life -------------------------------------------------------------------------------------------

    def register(self, extension: Extension) -> None:
        """Before recovery, which gives each extension back what it had saved and journalled."""
        self.extensions.append(extension)

    def start(self, journal: Journal, assign: Callable[["Engine", Any], None]) -> None:
        """All there was has been read: from here on frames are taken. `assign` submits what was appended."""
        self.journal = journal
        self.queue = CommitQueue(journal, self.witness, self.counters, self.reserve, partial(assign, self))
        self.append = self.queue.enqueue
        self.totals.start_counting()
        self.clock_mark.start(self._write_mark, self._submit_mark)

    def follow_clock(self) -> None:
        """This process answers for the journal: it may be told that the clock was set back."""
        self.shown_time.set_back = self._set_back
        self.now()
        self.clock_lead.look()

    def _write_mark(self, ms: int) -> bool:
        return self.queue.refusals.failure is None and self.queue.note_synced([_mark(ms)])

    def _submit_mark(self, ms: int, done: Callable[[], None]) -> None:
        if self.queue.refusals.is_stuck:
            return
        self.queue.submit(CallbackOp([_mark(ms)], None, lambda _: done(), lambda _: None, sync=True))

    def _set_back(self, now_ms: int) -> bool:
        """The clock was set back to here. What age had taken by then stays gone, and time goes on."""
        shown_ms = self.shown_time.floor_ms
        if self._may_write_again:
            # What waits was asked for at the time before, and has to stand before it in the journal.
            if self.queue.refusals.is_stuck or self.queue.has_unwritten:
                return False
            lines = [(topic.id, topic.cap_hi, topic.ttl_hi) for topic in self.by_id.values() if topic.ttl_hi]
            payload = msgspec.msgpack.encode((shown_ms, lines))
            frame = FrameDraft(Kind.CLOCK_SET_BACK, payload, ts=now_ms)
            if not self.queue.note_synced([frame]) and self._may_write_again:
                return False
        self.forget_later_times(shown_ms, now_ms)
        self.shown_time.restart(shown_ms, now_ms)
        log.warning("the clock was set back from %s to %s", moment(shown_ms), moment(now_ms))
        self.clock_lead.look()
        return True

    @property
    def _may_write_again(self) -> bool:
        """Otherwise no frame follows, and none has to agree with what happens until the restart."""
        return self.queue.refusals.off in (None, WritesOff.DISK_FULL)

    def rotate_if_full(self) -> None:
        if self.journal.current_bytes >= ROTATE_BYTES:
            self.rotate()

    def rotate_to_import(self) -> bool:
        """Make sure that the journal goes on in a file that may import segments; False if it cannot."""
        if not self.journal.may_adopt:
            self.rotate(to_adopt=True)
        return self.journal.may_adopt

    def rotate(self, *, to_adopt: bool = False) -> None:
        """Close the journal file with the heads of the topics written in it, and start another."""
        if self.queue.refusals.failure is not None:
            return
        try:
            self.require_home(self.dirs.journal)
        except OSError:
            return  # no file is begun elsewhere; writes end as soon as the node has noticed
        self.queue.flush()
        # Where writes are held, seqs are given out that no frame has yet: those topics close the next file.
        held = {topic for topic in self.touched if self.queue.holds(topic)}
        touched = (topic for topic in self.touched - held if not topic.dropped)
        heads = sorted((topic.id, topic.assigned) for topic in touched)
        frame = FrameDraft(Kind.HEADS, msgspec.msgpack.encode(heads), ts=self.now())
        if self.queue.note([frame]) and self.queue.rotate(to_adopt=to_adopt):
            self.touched = held
            self.queue.counters.rotations += 1

    def write_ahead(self) -> None:
        """Beside the loop: the next file of the journal is written before it is needed."""
        self.reserve.write_ahead(ROTATE_BYTES, self.journal.ahead_bytes)

    def close(self, *, clean: bool) -> None:
        if clean:
            # The page then knows when it was: leases go on from there.
            self.now()
            # "Clean" promises that even a power failure after this moment finds everything.
            self.queue.sync_journal()
            clean = self.queue.refusals.failure is None
        if self.journal is not None:  # None after a recovery that failed
            self.queue.land()
            self.journal.close(clean=clean)
        self.store.close()
        self.reserve.close()
        self.witness.close(clean=clean)


def _mark(ms: int) -> FrameDraft:
    return FrameDraft(Kind.CLOCK, b"", ts=ms)

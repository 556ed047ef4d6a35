"""The engine: every topic, the journal under them, and the operations on records that the API is made of.

One thread owns it. An operation is checked, journalled through the commit queue, and takes effect when it is
committed; callers pass callbacks, because that is later than the call.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

import msgspec

from topics.log.clock_mark import ClockMark
from topics.log.extension import Extension
from topics.log.lifecycle import create_topic
from topics.log.read.page import Page, read_page
from topics.log.read.render import STORED, Shape
from topics.log.remove import deletion
from topics.log.remove.deletion import Selector
from topics.log.remove.removal import surviving_damage
from topics.log.remove.retention import expire
from topics.log.remove.tag_search import TagSearch
from topics.log.remove.tags import TagMatch
from topics.log.seal.segment_store import SegmentStore
from topics.log.seal.unsealed import Unsealed
from topics.log.topic import Topic
from topics.log.totals import Totals
from topics.log.write.append import AppendOp, append_batch
from topics.log.write.append_request import AppendRequest
from topics.log.write.batch import Batch
from topics.log.write.commit_queue import CommitQueue, Counters
from topics.log.write.operation import CallbackOp, Fail, Op
from topics.storage.directories import Directories
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Kind
from topics.storage.journal import ROTATE_BYTES, Journal
from topics.storage.snapshot import SnapshotStore
from topics.storage.witness import Witness
from topics.values.clock import Clock
from topics.values.config import DEFAULT_CONFIG, check_config
from topics.values.errors import ApiError, topic_not_found
from topics.values.names import is_topic_name, require_topic_name
from topics.values.settings import Settings


class Engine:
    def __init__(self, settings: Settings, fs: Filesystem, clock: Clock) -> None:
        self.settings = settings
        self.fs = fs
        self.clock = clock
        self.dirs = Directories(settings.data_dir)
        for path in (self.dirs.journal, self.dirs.segments, self.dirs.snapshots):
            fs.make_dirs(path)
        if settings.cold_dir:
            fs.make_dirs(settings.cold_dir)
        unsealed = Unsealed(settings.segment_max_events, settings.segment_max_bytes)
        self.store = SegmentStore(fs, self.dirs.segments, settings.cold_dir, unsealed)
        self.snapshots = SnapshotStore(fs, self.dirs.snapshots)
        self.witness = Witness(fs, self.dirs.root)
        self.totals = Totals()
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.sorted_names: list[str] = []
        self.next_topic_id = 1
        self.next_segment = 1
        self.extensions: list[Extension] = []
        # Topics that are fed by reference: a small frame may give out many of their seqs.
        self.derived: set[int] = set()
        # Topics written since the current journal file began; their heads close it.
        self.touched: set[Topic] = set()
        self.clock_floor_ms = 0
        self.clock_mark = ClockMark()
        self.journal: Journal = None  # type: ignore[assignment]  # set when recovery is over
        self.queue: CommitQueue = None  # type: ignore[assignment]
        self.counters = Counters()
        # Until then, all of it belongs to the thread that recovers it.
        self.recovered = False

    def register(self, extension: Extension) -> None:
        """Before recovery, which gives each extension back what it had saved and journalled."""
        self.extensions.append(extension)

    def start(self, journal: Journal) -> None:
        """All there was has been read: from here on frames are taken."""
        self.journal = journal
        self.queue = CommitQueue(journal, self.witness, self.counters)
        self.totals.start_counting()
        self.clock_mark.start(journal, self.queue)

    @property
    def read_only(self) -> bool:
        """True once a commit failed: reads go on, writes are off until restart."""
        return self.recovered and self.queue.failure is not None

    @property
    def queue_depth(self) -> int:
        return self.queue.depth if self.recovered else 0

    @property
    def open_group(self) -> int:
        """The group that writes gather for; 0 while there are none."""
        return self.queue.group if self.queue_depth else 0

    @property
    def damage_events(self) -> int:
        return self.totals.damage

    # --- time -------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Wall clock, never behind what was shown before: not in this process, not before a restart.

        Replay depends on it. Age takes records without a frame of its own, so frames that follow have to
        carry a time at which the same records are gone.
        """
        now = self.clock.now_ms()
        if now > self.clock_floor_ms:
            self.clock_floor_ms = now
            self.witness.clock(now)
        return self.clock_floor_ms

    def expire_all(self, now: int) -> None:
        for topic in self.by_name.values():
            if topic.config.ttl_ms:
                expire(topic, now)

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
            expire(topic, self.now())
            if topic.ttl_unnoted and self.recovered and self.queue.failure is None:
                # A reader is about to be told why they are gone; that has to stay the reason.
                self.note_lines(topic)

    # --- loss lines -------------------------------------------------------------------------------------

    def note_lines(self, topic: Topic) -> None:
        """Journal the loss lines themselves, for once: replay would not find them again."""
        topic.lines_noted()
        lines = msgspec.msgpack.encode((topic.cap_hi, topic.ttl_hi))
        self.queue.note(self.journal.frame(Kind.LINES, lines, topic_id=topic.id, ts=self.now()))

    def note_moved_lines(self, topic: Topic, cap_hi: int, ttl_hi: int) -> None:
        """After an operation that was ordered when the lines stood as given.

        Replay applies it at the time it was ordered. A reader who came while it waited for the disk may
        have been shown more; and caps depend on ephemeral records, which replay does not have.
        """
        if topic.ttl_hi != ttl_hi or (topic.mixed and topic.cap_hi != cap_hi):
            self.note_lines(topic)

    # --- records ----------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        request: AppendRequest,
        done: Callable[[AppendOp], None],
        fail: Fail,
        *,
        may_configure: bool = True,
    ) -> None:
        """Write a batch, creating the topic when the request allows it."""
        topic = self.by_name.get(name)
        now = self.now()
        refusals: list[ApiError] = []
        created = topic is None
        if topic is None:
            topic = self._create_for_append(
                name, request, may_configure, lambda: fail(refusals[0]) if refusals else None
            )
        op = AppendOp(self, topic, request.batch, now)
        op.created = created
        op.on_done = done
        op.on_error = fail
        try:
            append_batch(self, topic, request.batch, op, key=request.idempotency_key)
        except ApiError as error:
            if not created:
                raise
            # The new topic stays; the refusal is answered once it is there to be seen.
            refusals.append(error)

    def append_to(self, topic: Topic, batch: Batch, done: Callable[[AppendOp], None], fail: Fail) -> None:
        """Write a batch to a topic that was there a moment ago."""
        if self.by_name.get(topic.name) is not topic:
            raise topic_not_found(topic.name)
        op = AppendOp(self, topic, batch, self.now())
        op.on_done = done
        op.on_error = fail
        append_batch(self, topic, batch, op)

    def _create_for_append(
        self, name: str, request: AppendRequest, may_configure: bool, done: Callable[[], None]
    ) -> Topic:
        config = request.config or DEFAULT_CONFIG
        wanted = config.auto_create if request.create is None else request.create
        if not wanted:
            raise topic_not_found(name)
        if not is_topic_name(name):
            require_topic_name(name)
        check_config(config, name)
        if request.config is not None and not may_configure:
            raise ApiError("forbidden", "creating a topic with a config needs the admin scope")
        return create_topic(self, name, config, done, _nothing_failed)

    def delete_records(
        self,
        topic: Topic,
        before: int | None,
        match: TagMatch | None,
        done: Callable[[int], None],
        fail: Fail,
        *,
        search: TagSearch | None = None,
    ) -> None:
        """Remove what exists now. The bound is the last seq given out, committed or not.

        `search` may know already what the files hold of it. Synced in every class that keeps records: what
        somebody wanted gone must not come back because the power failed.
        """
        selector = Selector(
            topic.assigned + 1,
            before,
            None if match is None else match.value,
            match is not None and match.is_prefix,
        )
        keeps = topic.config.durability != "ephemeral"
        self.submit_delete(
            topic, selector, lambda op, deleted: done(deleted), fail, search=search, sync=keeps
        )

    def submit_delete(
        self,
        topic: Topic,
        selector: Selector,
        done: Callable[[Op, int], None],
        fail: Fail,
        *,
        search: TagSearch | None = None,
        sync: bool = False,
    ) -> None:
        """`sync`: even if the topic's class does not ask for it."""
        self.refresh(topic)
        now = self.now()
        lines = topic.cap_hi, topic.ttl_hi
        frame = self.journal.frame(Kind.DELETE, msgspec.msgpack.encode(selector), topic_id=topic.id, ts=now)

        def apply(op: Op) -> None:
            deleted = self.apply_delete(topic, selector, now, search)
            self.note_moved_lines(topic, *lines)
            done(op, deleted)

        sync = sync or topic.config.durability == "fsync"
        self.queue.submit(CallbackOp(frame, topic, apply, fail, sync=sync))

    def apply_delete(
        self, topic: Topic, selector: Selector, now: int, search: TagSearch | None = None
    ) -> int:
        def act() -> int:
            expire(topic, now)
            return deletion.apply(topic, selector, search)

        return surviving_damage(topic, act)

    def read(
        self,
        topic: Topic,
        from_seq: int,
        limit: int,
        max_bytes: int,
        *,
        nodes: frozenset[str] | None = None,
        shape: Shape = STORED,
        epoch: int | None = None,
        upto: int | None = None,
    ) -> Page:
        """One page of records above a cursor: the read path of every protocol."""
        if topic.config.ttl_ms:
            self.refresh(topic)
        if not topic.config.dedupe_node:
            nodes = None
        return surviving_damage(
            topic,
            lambda: read_page(
                topic, from_seq, limit, max_bytes, nodes=nodes, shape=shape, epoch=epoch, upto=upto
            ),
        )

    # --- housekeeping -----------------------------------------------------------------------------------

    def rotate_if_full(self) -> None:
        if self.journal.current_bytes >= ROTATE_BYTES:
            self.rotate()

    def rotate(self) -> None:
        """Close the journal file with the heads of the topics written in it, and start another."""
        if self.queue.failure is not None:
            return
        self.queue.flush()
        heads = sorted((topic.id, topic.assigned) for topic in self.touched if not topic.dropped)
        try:
            self.journal.write(self.journal.frame(Kind.HEADS, msgspec.msgpack.encode(heads), ts=self.now()))
            self.journal.rotate()
        except OSError as error:
            self.queue.give_up(error)
            return
        self.touched.clear()
        self.queue.counters.rotations += 1

    def close(self, *, clean: bool) -> None:
        if clean:
            # "Clean" promises that even a power failure after this moment finds everything.
            self.queue.sync_journal()
            clean = self.queue.failure is None
        if self.journal is not None:  # None after a recovery that failed
            self.queue.land()
            self.journal.close()
        self.store.close()
        self.witness.close(clean=clean)


def _nothing_failed(_: ApiError) -> None:
    return None

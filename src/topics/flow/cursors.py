"""Named cursors: how far a consumer says it has come. They inform; they hold nothing back.

A cursor is a seq in one incarnation of a topic, and outlives it: a consumer that comes back to another topic
of the same name is told so. A cursor goes when it is removed, or was not used for a month. It is journalled,
and synced with whatever is synced next: a consumer that finds it a little behind reads a few records twice.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from topics.core import ApiError, invalid, is_topic_name, limit_reached
from topics.log import CallbackOp, Creation, Engine, Extension, Fail, Op, Topic
from topics.storage import Frame, FrameDraft, Kind

# Of the topics of one name.
MAX_CURSORS = 1000
# Of names that have no topic. Beyond that, those go first whose topic has been gone for longest.
MAX_LEFT_BEHIND = 100_000
UNUSED_MS = 30 * 24 * 60 * 60 * 1000
# The number of topics that each snapshot searches for unused cursors.
SWEPT_TOPICS = 2_000

_encode = msgspec.msgpack.encode


class StoredCursor(msgspec.Struct, array_like=True, gc=False):
    """`epoch` names the incarnation in which `seq` means something."""

    consumer: str
    seq: int
    epoch: int
    updated_ts: int


class KeptCursor(msgspec.Struct, array_like=True, gc=False):
    cursor: StoredCursor
    used_ts: int


class _Moved(msgspec.Struct, array_like=True, gc=False):
    """The payload of a frame: where the cursor is now, or, without a cursor, that it is gone."""

    consumer: str
    cursor: StoredCursor | None
    # The name of a topic that is gone: the frame then has no topic's id.
    topic: str | None


_moved = msgspec.msgpack.Decoder(_Moved)
_state = msgspec.msgpack.Decoder(dict[str, list[KeptCursor]])


class Cursors(Extension):
    """All cursors, by the name of their topic and by consumer."""

    name = "named_cursors"
    kinds: tuple[int, ...] = (Kind.CURSOR,)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_topic: dict[str, dict[str, KeptCursor]] = {}
        self._sorted_topics: list[str] = []
        # The names among them that have no topic, in the order in which they lost it.
        self._gone: dict[str, None] = {}
        # The number of cursors of names that have no topic.
        self.left_behind = 0
        # New cursors that are on their way to the journal, by the name of their topic.
        self._coming: Counter[str] = Counter()
        # The cursors of each topic as the last snapshot has them, and the topics that have changed since.
        self._encoded: dict[str, msgspec.Raw] = {}
        self._changed: set[str] = set()
        self._swept = 0

    # --- looking ----------------------------------------------------------------------------------------

    def has(self, topic: str) -> bool:
        """Whether there are any, used or not."""
        return topic in self._by_topic

    def of(self, topic: str, only: str | None = None) -> list[StoredCursor]:
        """Return the cursors of the topics of one name, in the order of consumers."""
        oldest, cursors = self._engine.now() - UNUSED_MS, self._by_topic.get(topic, {})
        names = sorted(cursors) if only is None else [only] * (only in cursors)
        return [cursors[name].cursor for name in names if cursors[name].used_ts >= oldest]

    def find(self, topic: str, consumer: str) -> StoredCursor | None:
        return next(iter(self.of(topic, consumer)), None)

    def everywhere(self) -> Iterator[tuple[Topic, StoredCursor]]:
        """Yield the cursors of topics that exist."""
        for name in self._by_topic:
            topic = self._engine.find(name)
            if topic is not None:
                for cursor in self.of(name):
                    yield topic, cursor

    def walk(
        self, topic: str = "", consumer: str = "", *, prefix: str = "", only: str | None = None
    ) -> Iterator[tuple[str, StoredCursor | None]]:
        """Yield cursors after this one, in the order of topics and consumers; None for a topic without any.

        `prefix`: of the topics. `only`: of this consumer.
        """
        names = self._sorted_topics
        for index in range(bisect_left(names, max(topic, prefix)), len(names)):
            name = names[index]
            if not name.startswith(prefix):
                return
            for cursor in self.of(name, only) or (None,):
                if name > topic or (cursor is not None and cursor.consumer > consumer):
                    yield name, cursor

    @staticmethod
    def lag(topic: Topic, cursor: StoredCursor) -> int:
        """Return the number of seqs after it; for a cursor of another incarnation, that of all records."""
        if cursor.epoch != topic.id or cursor.seq > topic.head:
            return topic.live_count
        return topic.head - cursor.seq

    def use(self, topic: str, consumer: str) -> StoredCursor | None:
        """Find a cursor for its consumer, which uses it by that. The next snapshot knows of the use."""
        cursor = self.find(topic, consumer)
        if cursor is not None:
            self._by_topic[topic][consumer].used_ts = self._engine.now()
            self._changed.add(topic)
        return cursor

    # --- moving -----------------------------------------------------------------------------------------

    def put(
        self,
        topic: Topic,
        consumer: str,
        seq: int,
        epoch: int | None,
        done: Callable[[StoredCursor, bool], None],
        fail: Fail,
    ) -> None:
        """Set a cursor, forwards or backwards; `done` is told whether it is new."""
        if not is_topic_name(consumer):
            raise invalid("a consumer's name follows the rule for topic names")
        name, now = topic.name, self._engine.now()
        self._forget_unused(name)
        known = self._by_topic.get(name, {})
        is_new = consumer not in known
        if is_new and len(known) + self._coming[name] >= MAX_CURSORS:
            raise limit_reached("max_cursors", MAX_CURSORS)
        cursor = StoredCursor(consumer, seq, topic.id if epoch is None else epoch, now)

        def arrived() -> None:
            self._coming[name] -= is_new
            if not self._coming[name]:
                del self._coming[name]

        def apply(_: Op) -> None:
            arrived()
            created = self.find(name, consumer) is None
            if not topic.dropped:  # while this was on its way
                self._keep(name, cursor, now)
            done(cursor, created)

        def refuse(error: ApiError) -> None:
            arrived()
            fail(error)

        kind = Creation if is_new else CallbackOp
        self._submit(topic, _Moved(consumer, cursor, None), apply, refuse, kind)
        self._coming[name] += is_new

    def drop(self, topic: str, consumer: str, done: Callable[[bool], None], fail: Fail) -> None:
        if self.find(topic, consumer) is None:
            done(False)
            return
        found = self._engine.find(topic)

        def apply(_: Op) -> None:
            deleted = self.find(topic, consumer) is not None
            self._remove(topic, consumer)
            done(deleted)

        self._submit(found, _Moved(consumer, None, None if found is not None else topic), apply, fail)

    def _submit(
        self,
        topic: Topic | None,
        moved: _Moved,
        apply: Callable[[Op], None],
        fail: Fail,
        kind: type[CallbackOp] = CallbackOp,
    ) -> None:
        topic_id = 0 if topic is None else topic.id
        frame = FrameDraft(Kind.CURSOR, _encode(moved), topic_id=topic_id, ts=self._engine.now())
        self._engine.queue.submit(kind([frame], topic, apply, fail, sync=False))

    def _keep(self, topic: str, cursor: StoredCursor, used_ts: int) -> None:
        cursors = self._by_topic.get(topic)
        if cursors is None:
            cursors = self._by_topic[topic] = {}
            insort(self._sorted_topics, topic)
        if topic in self._gone and cursor.consumer not in cursors:
            self.left_behind += 1
        cursors[cursor.consumer] = KeptCursor(cursor, used_ts)
        self._changed.add(topic)

    def _remove(self, topic: str, consumer: str) -> None:
        cursors = self._by_topic.get(topic, {})
        if cursors.pop(consumer, None) is None:
            return
        self._changed.add(topic)
        if topic in self._gone:
            self.left_behind -= 1
        if not cursors:
            self._gone.pop(topic, None)
            del self._by_topic[topic]
            del self._sorted_topics[bisect_left(self._sorted_topics, topic)]

    def _forget_unused(self, topic: str) -> None:
        oldest = self._engine.now() - UNUSED_MS
        cursors = self._by_topic.get(topic, {})
        for consumer in [name for name, kept in cursors.items() if kept.used_ts < oldest]:
            self._remove(topic, consumer)

    # --- as an extension of the log ---------------------------------------------------------------------

    def topic_shown(self, topic: Topic) -> None:
        """Another topic takes the name. Its consumers still have their cursors, of the incarnation before."""
        if topic.name in self._gone:
            del self._gone[topic.name]
            self.left_behind -= len(self._by_topic[topic.name])

    def topic_dropped(self, topic: Topic) -> None:
        self._leave_behind(topic.name)

    def _leave_behind(self, topic: str) -> None:
        if topic not in self._by_topic:
            return
        self._gone[topic] = None
        self.left_behind += len(self._by_topic[topic])
        while self.left_behind > MAX_LEFT_BEHIND:
            oldest = next(iter(self._gone))
            for consumer in list(self._by_topic[oldest]):
                self._remove(oldest, consumer)

    def replay(self, frame: Frame) -> None:
        moved = _moved.decode(frame.payload)
        topic = self._engine.by_id.get(frame.topic_id)
        name = moved.topic if topic is None else topic.name
        if name is None:
            return
        if moved.cursor is None:
            self._remove(name, moved.consumer)
        else:
            self._keep(name, moved.cursor, frame.ts)

    def dump(self) -> Any:
        """Return an encoded array of cursors for each topic.

        Topics that are gone come last, in the order in which they went. Each snapshot searches some topics
        for unused cursors.
        """
        names = list(islice(self._sorted_topics, self._swept, self._swept + SWEPT_TOPICS))
        self._swept = self._swept + len(names) if len(names) == SWEPT_TOPICS else 0
        for name in names:
            self._forget_unused(name)
        self._encode_changed()
        gone = {name: self._encoded[name] for name in self._gone}
        return {name: raw for name, raw in self._encoded.items() if name not in gone} | gone or None

    def _encode_changed(self) -> None:
        for name in self._changed:
            self._encoded.pop(name, None)
            if name in self._by_topic:
                self._encoded[name] = msgspec.Raw(_encode(list(self._by_topic[name].values())))
        self._changed.clear()

    def load(self, state: Any) -> None:
        for name, cursors in _state.decode(_encode(state)).items():
            for kept in cursors:
                self._keep(name, kept.cursor, kept.used_ts)
            if self._engine.find(name) is None:
                self._leave_behind(name)
        self._encode_changed()

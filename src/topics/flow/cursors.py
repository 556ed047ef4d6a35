"""Named cursors: how far a consumer says it has come. They inform; they hold nothing back.

A cursor is a seq in one life of a topic, and outlives it: a consumer that comes back to another topic of the
same name finds out by it. It goes when it is removed, or was not used for a month. It is journalled, and gets
to the disk with whatever is synced next: a consumer that finds it a little behind reads a few records twice.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from topics.log import CallbackOp, Engine, Extension, Fail, Op, Topic
from topics.storage import Frame, Kind
from topics.values import invalid, is_topic_name, limit_reached

# Of the topics of one name.
MAX_CURSORS = 1000
# Of names that have no topic. Beyond that, those go first whose topic has been gone for longest.
MAX_LEFT_BEHIND = 100_000
UNUSED_MS = 30 * 24 * 60 * 60 * 1000


class Cursor(msgspec.Struct, array_like=True, gc=False):
    """`epoch` names the life in which `seq` means something."""

    consumer: str
    seq: int
    epoch: int
    updated_ts: int


class _Moved(msgspec.Struct, array_like=True, gc=False):
    """What a frame says: where the cursor is now, or, without a cursor, that it is gone."""

    consumer: str
    cursor: Cursor | None
    # Where the frame has no topic's id, because the topic is gone.
    topic: str | None = None


class KeptCursor(msgspec.Struct, array_like=True, gc=False):
    cursor: Cursor
    # 0 for one that an older server left: it counts as used when that is noticed.
    used_ts: int

    def is_forgotten(self, now: int) -> bool:
        return self.used_ts > 0 and now - self.used_ts > UNUSED_MS


_moved = msgspec.msgpack.Decoder(_Moved)
_state = msgspec.msgpack.Decoder(dict[str, list[KeptCursor]])
_former_state = msgspec.msgpack.Decoder(dict[int, list[Cursor]])


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
        # How many cursors those have.
        self.left_behind = 0
        # Whether frames tell when a cursor was used: those of older servers do not.
        self._uses_are_known = False

    @property
    def extensions(self) -> "tuple[Cursors, FormerCursors]":
        return self, FormerCursors(self._engine, self)

    # --- looking ----------------------------------------------------------------------------------------

    def find(self, topic: str, consumer: str) -> Cursor | None:
        return next(self._remembered(topic, (consumer,), self._engine.now()), None)

    def of(self, topic: str) -> list[Cursor]:
        """Of the topics of one name, in the order of consumers."""
        return list(self._remembered(topic, sorted(self._by_topic.get(topic, ())), self._engine.now()))

    def _remembered(self, topic: str, consumers: Iterable[str], now: int) -> Iterator[Cursor]:
        cursors = self._by_topic.get(topic, {})
        for consumer in consumers:
            kept = cursors.get(consumer)
            if kept is not None and not kept.is_forgotten(now):
                yield kept.cursor

    def after(
        self, topic: str, consumer: str, *, prefix: str = "", only: str | None = None
    ) -> Iterator[tuple[str, Cursor]]:
        """With the names of their topics, in the order of both, behind a place in that order.

        `prefix`: of the topics. `only`: of this consumer.
        """
        names, now = self._sorted_topics, self._engine.now()
        for index in range(bisect_left(names, max(topic, prefix)), len(names)):
            name = names[index]
            if not name.startswith(prefix):
                return
            consumers = sorted(self._by_topic[name]) if only is None else (only,)
            for cursor in self._remembered(name, consumers, now):
                if name > topic or cursor.consumer > consumer:
                    yield name, cursor

    def everywhere(self) -> Iterator[tuple[Topic, Cursor]]:
        """Those of topics that exist."""
        for name in self._by_topic:
            topic = self._engine.find(name)
            if topic is not None:
                for cursor in self.of(name):
                    yield topic, cursor

    @staticmethod
    def lag(topic: Topic, cursor: Cursor) -> int:
        """What a read from there has before it; a cursor of another life has everything before it."""
        if cursor.epoch != topic.id or cursor.seq > topic.head:
            return topic.live_count
        return topic.head - cursor.seq

    def use(self, topic: str, consumer: str) -> Cursor | None:
        """As `find`, for the consumer itself: to look at it is to use it. The next snapshot knows of that."""
        cursor = self.find(topic, consumer)
        if cursor is not None:
            self._by_topic[topic][consumer].used_ts = self._engine.now()
        return cursor

    # --- moving -----------------------------------------------------------------------------------------

    def put(
        self,
        topic: Topic,
        consumer: str,
        seq: int,
        epoch: int | None,
        done: Callable[[Cursor, bool], None],
        fail: Fail,
    ) -> None:
        """Set a cursor, forwards or backwards; `done` is told whether it is new."""
        if not is_topic_name(consumer):
            raise invalid("a consumer's name follows the rule for topic names")
        name, now = topic.name, self._engine.now()
        self._forget_unused(name, now)
        known = self._by_topic.get(name, {})
        if consumer not in known and len(known) >= MAX_CURSORS:
            raise limit_reached("max_cursors", MAX_CURSORS)
        cursor = Cursor(consumer, seq, topic.id if epoch is None else epoch, now)
        moved = _Moved(consumer, cursor)

        def apply(_: Op) -> None:
            created = self.find(name, consumer) is None
            if not topic.dropped:  # while this was on its way
                self._apply(name, moved, now)
            done(cursor, created)

        self._submit(topic, name, moved, apply, fail)

    def drop(self, topic: str, consumer: str, done: Callable[[bool], None], fail: Fail) -> None:
        if self.find(topic, consumer) is None:
            done(False)
            return
        moved = _Moved(consumer, None)

        def apply(_: Op) -> None:
            deleted = self.find(topic, consumer) is not None
            self._apply(topic, moved, 0)
            done(deleted)

        self._submit(self._engine.find(topic), topic, moved, apply, fail)

    def _submit(
        self, topic: Topic | None, name: str, moved: _Moved, apply: Callable[[Op], None], fail: Fail
    ) -> None:
        """Without a topic, the frame has the name of the one that is gone."""
        engine = self._engine
        fact = (moved.consumer, moved.cursor) if topic is not None else (moved.consumer, moved.cursor, name)
        topic_id = 0 if topic is None else topic.id
        payload = msgspec.msgpack.encode(fact)
        frame = engine.journal.frame(Kind.CURSOR, payload, topic_id=topic_id, ts=engine.now())
        engine.queue.submit(CallbackOp(frame, topic, apply, fail, sync=False))

    def _apply(self, topic: str, moved: _Moved, used_ts: int) -> None:
        if moved.cursor is None:
            self._remove(topic, moved.consumer)
        else:
            self._keep(topic, KeptCursor(moved.cursor, used_ts))

    def _keep(self, topic: str, kept: KeptCursor) -> None:
        cursors = self._by_topic.get(topic)
        if cursors is None:
            cursors = self._by_topic[topic] = {}
            insort(self._sorted_topics, topic)
        if topic in self._gone and kept.cursor.consumer not in cursors:
            self.left_behind += 1
        cursors[kept.cursor.consumer] = kept

    def _remove(self, topic: str, consumer: str) -> None:
        cursors = self._by_topic.get(topic, {})
        if cursors.pop(consumer, None) is None:
            return
        if topic in self._gone:
            self.left_behind -= 1
        if not cursors:
            self._gone.pop(topic, None)
            del self._by_topic[topic]
            del self._sorted_topics[bisect_left(self._sorted_topics, topic)]

    def _forget_unused(self, topic: str, now: int) -> None:
        cursors = self._by_topic.get(topic, {})
        for consumer in [name for name, kept in cursors.items() if kept.is_forgotten(now)]:
            self._remove(topic, consumer)

    def adopt(self, topic: str, cursors: list[Cursor]) -> None:
        """What an older server had kept with a topic."""
        for cursor in cursors:
            self._keep(topic, KeptCursor(cursor, 0))

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        moved = _moved.decode(frame.payload)
        topic = self._engine.by_id.get(frame.topic_id)
        name = moved.topic if topic is None else topic.name
        if name is not None:
            self._apply(name, moved, frame.ts if self._uses_are_known else 0)

    def dump(self) -> Any:
        now = self._engine.now()
        for name in list(self._by_topic):
            self._forget_unused(name, now)
        for cursors in self._by_topic.values():
            for kept in cursors.values():
                kept.used_ts = kept.used_ts or now
        return {name: list(cursors.values()) for name, cursors in self._by_topic.items()} or None

    def load(self, state: Any) -> None:
        self._uses_are_known = True
        for name, cursors in _state.decode(msgspec.msgpack.encode(state)).items():
            for kept in cursors:
                self._keep(name, kept)
            if self._engine.find(name) is None:
                self._topic_gone(name)

    def topic_shown(self, topic: Topic) -> None:
        """A topic has the name again. Its consumers still have their cursors, of the life before."""
        if topic.name in self._gone:
            del self._gone[topic.name]
            self.left_behind -= len(self._by_topic[topic.name])

    def topic_dropped(self, topic: Topic) -> None:
        if topic.name in self._by_topic:
            # To the end: snapshots keep the order in which topics went.
            self._by_topic[topic.name] = self._by_topic.pop(topic.name)
            self._topic_gone(topic.name)

    def _topic_gone(self, topic: str) -> None:
        self._gone[topic] = None
        self.left_behind += len(self._by_topic[topic])
        while self.left_behind > MAX_LEFT_BEHIND:
            oldest = next(iter(self._gone))
            for consumer in list(self._by_topic[oldest]):
                self._remove(oldest, consumer)


class FormerCursors(Extension):
    """Cursors as older servers wrote them to snapshots: under ids of topics, and without their last use."""

    name = "cursors"
    kinds: tuple[int, ...] = ()

    def __init__(self, engine: Engine, cursors: Cursors) -> None:
        self._engine = engine
        self._cursors = cursors

    def dump(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        for topic_id, cursors in _former_state.decode(msgspec.msgpack.encode(state)).items():
            self._cursors.adopt(self._engine.by_id[topic_id].name, cursors)

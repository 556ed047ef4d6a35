"""Named cursors: how far a consumer says it has come. They inform; they hold nothing back.

A cursor is a seq in one life of a topic, and outlives it: a consumer that comes back to another topic of the
same name finds out by it. It goes when it is removed, or was not used for a month. It is journalled, and gets
to the disk with whatever is synced next: a consumer that finds it a little behind reads a few records twice.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics.core import ApiError, invalid, is_topic_name, limit_reached
from topics.flow.kept_cursors import KeptCursor, KeptCursors, StoredCursor
from topics.log import CallbackOp, Creation, Engine, Extension, Fail, Op, Topic
from topics.storage import Frame, FrameDraft, Kind

# Of the topics of one name.
MAX_CURSORS = 1000


class _Moved(msgspec.Struct, array_like=True, gc=False):
    """What a frame says: where the cursor is now, or, without a cursor, that it is gone."""

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
        self._kept = KeptCursors()
        # New ones that are on their way to the journal, by the name of their topic.
        self._coming: Counter[str] = Counter()

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def left_behind(self) -> int:
        """How many there are of topics that are gone."""
        return self._kept.left_behind

    def has(self, topic: str) -> bool:
        """Some that are perhaps forgotten by now."""
        return self._kept.count(topic) > 0

    def find(self, topic: str, consumer: str) -> StoredCursor | None:
        return self._kept.find(topic, consumer, self._engine.now())

    def of(self, topic: str) -> list[StoredCursor]:
        """Of the topics of one name, in the order of consumers."""
        return self._kept.of(topic, self._engine.now())

    def walk(
        self, topic: str = "", consumer: str = "", *, prefix: str = "", only: str | None = None
    ) -> Iterator[tuple[str, StoredCursor | None]]:
        """See `KeptCursors.walk`."""
        return self._kept.walk(topic, consumer, self._engine.now(), prefix=prefix, only=only)

    def everywhere(self) -> Iterator[tuple[Topic, StoredCursor]]:
        """Those of topics that exist."""
        for name, cursor in self._kept.everywhere(self._engine.now()):
            topic = self._engine.find(name)
            if topic is not None:
                yield topic, cursor

    @staticmethod
    def lag(topic: Topic, cursor: StoredCursor) -> int:
        """What a read from there has before it; a cursor of another life has everything before it."""
        if cursor.epoch != topic.id or cursor.seq > topic.head:
            return topic.live_count
        return topic.head - cursor.seq

    def use(self, topic: str, consumer: str) -> StoredCursor | None:
        """As `find`, for the consumer itself: to look at it is to use it. The next snapshot knows of that."""
        cursor = self.find(topic, consumer)
        if cursor is not None:
            self._kept.use(topic, consumer, self._engine.now())
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
        self._kept.forget_unused(name, now)
        is_new = self.find(name, consumer) is None
        if is_new and self._kept.count(name) + self._coming[name] >= MAX_CURSORS:
            raise limit_reached("max_cursors", MAX_CURSORS)
        cursor = StoredCursor(consumer, seq, topic.id if epoch is None else epoch, now)
        moved = _Moved(consumer, cursor, None)

        def apply(_: Op) -> None:
            self._note_coming(name, -is_new)
            created = self.find(name, consumer) is None
            if not topic.dropped:  # while this was on its way
                self._apply(name, moved, now)
            done(cursor, created)

        def refuse(error: ApiError) -> None:
            self._note_coming(name, -is_new)
            fail(error)

        self._submit(topic, moved, apply, refuse, as_op=Creation if is_new else CallbackOp)
        self._note_coming(name, is_new)

    def _note_coming(self, name: str, more: int) -> None:
        self._coming[name] += more
        if not self._coming[name]:
            del self._coming[name]

    def drop(self, topic: str, consumer: str, done: Callable[[bool], None], fail: Fail) -> None:
        if self.find(topic, consumer) is None:
            done(False)
            return
        found = self._engine.find(topic)
        moved = _Moved(consumer, None, None if found is not None else topic)

        def apply(_: Op) -> None:
            deleted = self.find(topic, consumer) is not None
            self._apply(topic, moved, 0)
            done(deleted)

        self._submit(found, moved, apply, fail)

    def _submit(
        self,
        topic: Topic | None,
        moved: _Moved,
        apply: Callable[[Op], None],
        fail: Fail,
        as_op: type[CallbackOp] = CallbackOp,
    ) -> None:
        engine = self._engine
        topic_id = 0 if topic is None else topic.id
        payload = msgspec.msgpack.encode(moved)
        frame = FrameDraft(Kind.CURSOR, payload, topic_id=topic_id, ts=engine.now())
        engine.queue.submit(as_op([frame], topic, apply, fail, sync=False))

    def _apply(self, topic: str, moved: _Moved, used_ts: int) -> None:
        if moved.cursor is None:
            self._kept.remove(topic, moved.consumer)
        else:
            self._kept.keep(topic, moved.cursor, used_ts)

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        moved = _moved.decode(frame.payload)
        topic = self._engine.by_id.get(frame.topic_id)
        name = moved.topic if topic is None else topic.name
        if name is not None:
            self._apply(name, moved, frame.ts)

    def dump(self) -> Any:
        return self._kept.dump(self._engine.now()) or None

    def load(self, state: Any) -> None:
        for name, cursors in _state.decode(msgspec.msgpack.encode(state)).items():
            self._kept.load(name, cursors)
            if self._engine.find(name) is None:
                self._kept.topic_gone(name)

    def topic_shown(self, topic: Topic) -> None:
        self._kept.topic_back(topic.name)

    def topic_dropped(self, topic: Topic) -> None:
        self._kept.topic_gone(topic.name)

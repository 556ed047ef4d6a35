"""Named cursors: how far a consumer says it has come. They inform; they hold nothing back.

A cursor belongs to one instance of a topic and goes with it. It is journalled and reaches the disk with
whatever is synced next: a consumer that finds its cursor a little behind reads a few records twice.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics.log import CallbackOp, Engine, Extension, Fail, Op, Topic
from topics.storage import Frame, Kind
from topics.values import invalid, is_topic_name, limit_reached

MAX_CURSORS = 1000


class Cursor(msgspec.Struct, array_like=True, gc=False):
    """`epoch` names the instance in which `seq` means something."""

    consumer: str
    seq: int
    epoch: int
    updated_ts: int


class _Moved(msgspec.Struct, array_like=True, gc=False):
    """What a frame says: where the cursor is now, or, without a cursor, that it is gone."""

    consumer: str
    cursor: Cursor | None


_moved = msgspec.msgpack.Decoder(_Moved)
_state = msgspec.msgpack.Decoder(dict[int, list[Cursor]])


class Cursors(Extension):
    """All cursors of all topics, by topic id and consumer."""

    name = "cursors"
    kinds: tuple[int, ...] = (Kind.CURSOR,)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_topic: dict[int, dict[str, Cursor]] = {}

    def find(self, topic: Topic, consumer: str) -> Cursor | None:
        return self._by_topic.get(topic.id, {}).get(consumer)

    def all(self, topic: Topic) -> list[Cursor]:
        cursors = self._by_topic.get(topic.id, {})
        return [cursors[consumer] for consumer in sorted(cursors)]

    def everywhere(self) -> Iterator[tuple[Topic, Cursor]]:
        for topic_id, cursors in self._by_topic.items():
            topic = self._engine.by_id[topic_id]
            for cursor in cursors.values():
                yield topic, cursor

    @staticmethod
    def lag(topic: Topic, cursor: Cursor) -> int:
        """What a read from there has before it; a cursor of another instance has everything before it."""
        if cursor.epoch != topic.id or cursor.seq > topic.head:
            return topic.head - topic.floor + 1
        return topic.head - cursor.seq

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
        known = self._by_topic.get(topic.id, {})
        if consumer not in known and len(known) >= MAX_CURSORS:
            raise limit_reached("max_cursors", MAX_CURSORS)
        now = self._engine.now()
        cursor = Cursor(consumer, seq, topic.id if epoch is None else epoch, now)

        def apply(_: Op) -> None:
            created = self.find(topic, consumer) is None
            self._apply(topic.id, _Moved(consumer, cursor))
            done(cursor, created)

        self._submit(topic, _Moved(consumer, cursor), apply, fail)

    def drop(self, topic: Topic, consumer: str, done: Callable[[bool], None], fail: Fail) -> None:
        if self.find(topic, consumer) is None:
            done(False)
            return

        def apply(_: Op) -> None:
            deleted = self.find(topic, consumer) is not None
            self._apply(topic.id, _Moved(consumer, None))
            done(deleted)

        self._submit(topic, _Moved(consumer, None), apply, fail)

    def _submit(self, topic: Topic, moved: _Moved, apply: Callable[[Op], None], fail: Fail) -> None:
        engine = self._engine
        payload = msgspec.msgpack.encode(moved)
        frame = engine.journal.frame(Kind.CURSOR, payload, topic_id=topic.id, ts=engine.now())
        engine.queue.submit(CallbackOp(frame, topic, apply, fail, sync=False))

    def _apply(self, topic_id: int, moved: _Moved) -> None:
        if topic_id not in self._engine.by_id:
            return  # dropped while this was on its way
        cursors = self._by_topic.setdefault(topic_id, {})
        if moved.cursor is None:
            cursors.pop(moved.consumer, None)
        else:
            cursors[moved.consumer] = moved.cursor

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        self._apply(frame.topic_id, _moved.decode(frame.payload))

    def dump(self) -> Any:
        return {topic_id: list(cursors.values()) for topic_id, cursors in self._by_topic.items() if cursors}

    def load(self, state: Any) -> None:
        known = _state.decode(msgspec.msgpack.encode(state))
        self._by_topic = {
            topic_id: {cursor.consumer: cursor for cursor in cursors} for topic_id, cursors in known.items()
        }

    def renumber(self, offset: int) -> None:
        """All topics have other ids now; a cursor still names the one for which it was set."""
        self._by_topic = {topic_id + offset: cursors for topic_id, cursors in self._by_topic.items()}

    def topic_dropped(self, topic: Topic) -> None:
        self._by_topic.pop(topic.id, None)

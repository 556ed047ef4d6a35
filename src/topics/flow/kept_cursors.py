"""Named cursors in memory: by topic and consumer, with their last use, beyond the life of their topic.

A cursor that was not used for a month is not found any more; its place is given back later, a few at a time.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

# Of names that have no topic. Beyond that, those go first whose topic has been gone for longest.
MAX_LEFT_BEHIND = 100_000
UNUSED_MS = 30 * 24 * 60 * 60 * 1000
# So many topics are looked through for forgotten cursors at every snapshot.
SWEPT_TOPICS = 2_000

_encode = msgspec.msgpack.encode


class StoredCursor(msgspec.Struct, array_like=True, gc=False):
    """`epoch` names the life in which `seq` means something."""

    consumer: str
    seq: int
    epoch: int
    updated_ts: int


class KeptCursor(msgspec.Struct, array_like=True, gc=False):
    cursor: StoredCursor
    used_ts: int

    def is_forgotten(self, now: int) -> bool:
        return now - self.used_ts > UNUSED_MS


class KeptCursors:
    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, KeptCursor]] = {}
        self._sorted_topics: list[str] = []
        # The names among them that have no topic, in the order in which they lost it.
        self._gone: dict[str, None] = {}
        # How many cursors those have.
        self.left_behind = 0
        # Those of each topic as the last snapshot has them, and the topics of which they have changed since.
        self._encoded: dict[str, msgspec.Raw] = {}
        self._changed: set[str] = set()
        self._swept = 0

    # --- looking ----------------------------------------------------------------------------------------

    def find(self, topic: str, consumer: str, now: int) -> StoredCursor | None:
        kept = self._by_topic.get(topic, {}).get(consumer)
        return None if kept is None or kept.is_forgotten(now) else kept.cursor

    def of(self, topic: str, now: int) -> list[StoredCursor]:
        """Of the topics of one name, in the order of consumers."""
        cursors = self._by_topic.get(topic, {})
        return [kept.cursor for _, kept in sorted(cursors.items()) if not kept.is_forgotten(now)]

    def count(self, topic: str) -> int:
        return len(self._by_topic.get(topic, ()))

    def everywhere(self, now: int) -> Iterator[tuple[str, StoredCursor]]:
        """With the names of their topics, in no order."""
        for name, cursors in self._by_topic.items():
            for kept in cursors.values():
                if not kept.is_forgotten(now):
                    yield name, kept.cursor

    def walk(
        self, topic: str, consumer: str, now: int, *, prefix: str, only: str | None
    ) -> Iterator[tuple[str, StoredCursor | None]]:
        """In the order of topics and consumers, behind a place in it; None for a topic with none of these.

        `prefix`: of the topics. `only`: of this consumer.
        """
        names = self._sorted_topics
        for index in range(bisect_left(names, max(topic, prefix)), len(names)):
            name = names[index]
            if not name.startswith(prefix):
                return
            found = [self.find(name, only, now)] if only is not None else self.of(name, now)
            for cursor in found or (None,):
                if name > topic or (cursor is not None and cursor.consumer > consumer):
                    yield name, cursor

    # --- changing ---------------------------------------------------------------------------------------

    def keep(self, topic: str, cursor: StoredCursor, used_ts: int) -> None:
        cursors = self._by_topic.get(topic)
        if cursors is None:
            cursors = self._by_topic[topic] = {}
            insort(self._sorted_topics, topic)
        if topic in self._gone and cursor.consumer not in cursors:
            self.left_behind += 1
        cursors[cursor.consumer] = KeptCursor(cursor, used_ts)
        self._changed.add(topic)

    def use(self, topic: str, consumer: str, now: int) -> None:
        self._by_topic[topic][consumer].used_ts = now
        self._changed.add(topic)

    def remove(self, topic: str, consumer: str) -> None:
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

    def forget_unused(self, topic: str, now: int) -> None:
        cursors = self._by_topic.get(topic, {})
        for consumer in [name for name, kept in cursors.items() if kept.is_forgotten(now)]:
            self.remove(topic, consumer)

    def topic_gone(self, topic: str) -> None:
        if topic not in self._by_topic:
            return
        self._gone[topic] = None
        self.left_behind += self.count(topic)
        while self.left_behind > MAX_LEFT_BEHIND:
            oldest = next(iter(self._gone))
            for consumer in list(self._by_topic[oldest]):
                self.remove(oldest, consumer)

    def topic_back(self, topic: str) -> None:
        """Another topic has the name. Its consumers still have their cursors, of the life before."""
        if topic in self._gone:
            del self._gone[topic]
            self.left_behind -= self.count(topic)

    # --- for snapshots ----------------------------------------------------------------------------------

    def dump(self, now: int) -> dict[str, msgspec.Raw]:
        """By topic, an array of cursors with their last use, encoded already.

        Topics that are gone come last, in the order in which they went.
        """
        self._sweep(now)
        for name in self._changed:
            self._encode(name)
        self._changed.clear()
        encoded = dict(self._encoded)
        for name in self._gone:
            encoded[name] = encoded.pop(name)
        return encoded

    def _encode(self, topic: str) -> None:
        cursors = self._by_topic.get(topic)
        if cursors is None:
            self._encoded.pop(topic, None)
            return
        self._encoded[topic] = msgspec.Raw(_encode(list(cursors.values())))

    def _sweep(self, now: int) -> None:
        """Some topics every time, all of them in turns."""
        names = list(islice(self._sorted_topics, self._swept, self._swept + SWEPT_TOPICS))
        self._swept = self._swept + len(names) if len(names) == SWEPT_TOPICS else 0
        for name in names:
            self.forget_unused(name, now)

    def load(self, topic: str, cursors: Iterable[KeptCursor]) -> None:
        for kept in cursors:
            self.keep(topic, kept.cursor, kept.used_ts)
        self._encode(topic)
        self._changed.discard(topic)

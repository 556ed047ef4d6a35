"""The idempotency keys of all topics: what bounds them, and how they outlive the process.

A key is journalled in the same frame as the records that were written with it, and kept in snapshots until
its window is over. What is remembered is bounded for each topic and in all; where there are more, the oldest
are forgotten before their time, which is counted.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heapify, heappop, heapreplace
from typing import Any

import msgspec

from topics.core import Settings
from topics.log.extension import Extension
from topics.log.seal.snapshot_state import EncodedState, Part, array_head, bytes_head
from topics.log.topic import Topic
from topics.log.write.idempotency import TopicKeys
from topics.storage import DIGEST_BYTES, Frame, Kind, decode_keys

# In one turn of upkeep so many topics are looked at, until so many keys have been let go.
_TOPICS_A_SWEEP = 1000
_KEYS_A_SWEEP = 20_000
# Where there are too many, some more go at once: finding the oldest takes longer than forgetting them.
_MORE_AT_ONCE = 256


def _some(most: int) -> int:
    return min(_MORE_AT_ONCE, most // 100)


class TopicKeysState(msgspec.Struct, array_like=True, gc=False):
    """The keys of one topic in a snapshot."""

    topic_id: int
    over_before_ms: int
    forgotten_ms: int
    # Of each chunk: how many of its keys are gone, the digests of all of them, and its rows.
    chunks: list[tuple[int, bytes, bytes]]


class KeysState(msgspec.Struct, array_like=True, gc=False):
    salt: bytes
    topics: list[TopicKeysState]


_pack = msgspec.msgpack.Encoder().encode
_state = msgspec.msgpack.Decoder(KeysState)


class AllKeys(Extension):
    name = "keys"
    kinds: tuple[int, ...] = (Kind.KEYED,)

    def __init__(self, settings: Settings, salt: bytes, find: Callable[[int], Topic | None]) -> None:
        """`salt`: like no other, for a log in which no key is remembered. `find` knows topics by their id."""
        self.most, self.most_a_topic = settings.max_idempotency_keys, settings.max_idempotency_keys_per_topic
        self.count = 0
        # Keys that a bound has taken before their window was over.
        self.forgotten = 0
        self.use_salt(salt)
        self._find = find
        self._holders: dict[Topic, TopicKeys] = {}
        # While there are too many: all holders when it was made, the one with the oldest key on top.
        self._by_age: list[tuple[int, int, TopicKeys]] = []
        self._aged_at_ms = 0
        self._to_sweep: list[Topic] = []

    def use_salt(self, salt: bytes) -> None:
        """Make digests of keys with this salt."""
        self.salt = salt
        self.hasher = blake2b(digest_size=DIGEST_BYTES, salt=salt)

    def of(self, topic: Topic) -> TopicKeys:
        keys = topic.keys
        if keys is None:
            keys = self._holders[topic] = TopicKeys(topic, self)
            topic.keep_keys(keys)
        return keys

    # --- bounds -----------------------------------------------------------------------------------------

    def add(self, count: int) -> None:
        self.count += count

    def forget_early(self, count: int) -> None:
        self.forgotten += count

    def note_new(self, keys: TopicKeys, count: int, now_ms: int) -> None:
        self.count += count
        most, most_a_topic = self.most, self.most_a_topic
        if keys.count > most_a_topic:
            keys.forget(keys.count - most_a_topic + _some(most_a_topic), now_ms)
        if self.count > most:
            enough = most - _some(most)
            while self.count > enough:
                self._oldest(now_ms).forget(1, now_ms)

    def _oldest(self, now_ms: int) -> TopicKeys:
        """Whose oldest key is the oldest of all."""
        by_age = self._by_age
        while by_age:
            ms, number, keys = by_age[0]
            if not keys.count:
                heappop(by_age)
            elif ms > self._aged_at_ms:
                break  # holders that came later may have older ones
            elif keys.oldest_ms != ms:
                heapreplace(by_age, (keys.oldest_ms, number, keys))
            else:
                return keys
        holders = [keys for keys in self._holders.values() if keys.count]
        self._by_age = [(keys.oldest_ms, number, keys) for number, keys in enumerate(holders)]
        self._aged_at_ms = now_ms
        heapify(self._by_age)
        return self._by_age[0][2]

    def sweep(self, now_ms: int) -> None:
        """Let go of keys that are over, some at a time. Upkeep calls it a few times a second."""
        if not self._to_sweep:
            self._to_sweep = list(self._holders)
        enough = self.count - _KEYS_A_SWEEP
        for _ in range(min(len(self._to_sweep), _TOPICS_A_SWEEP)):
            topic = self._to_sweep[-1]
            keys = topic.keys
            if keys is None:  # the topic is gone
                self._to_sweep.pop()
                continue
            keys.expire(now_ms)
            if not keys.has_over(now_ms):
                self._to_sweep.pop()
                if keys.is_idle:
                    self._release(topic)
            if self.count <= enough:
                return

    def set_back(self, shown_ms: int, now_ms: int) -> None:
        """The clock was set back: windows go on from there, and do not wait for it to come again."""
        self._by_age = []
        for keys in self._holders.values():
            keys.set_back(shown_ms, now_ms)

    def _release(self, topic: Topic) -> None:
        self._holders.pop(topic, None)
        topic.keep_keys(None)

    def topic_dropped(self, topic: Topic) -> None:
        if topic.keys is not None:
            topic.keys.clear()
            self._release(topic)

    # --- over a restart ---------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        """The records of the frame have been appended; a topic that is gone takes its keys along."""
        topic = self._find(frame.topic_id)
        if topic is None:
            return
        keys = decode_keys(frame.payload)
        if keys.salt != self.salt:
            # A process that finds none to go on from chooses another salt: the earlier keys were all over.
            self._forget_all()
            self.use_salt(keys.salt)
        self.of(topic).replay(keys, frame.first_seq, frame.clock_ms)

    def _forget_all(self) -> None:
        for topic in list(self._holders):
            self.topic_dropped(topic)

    def start(self) -> None:
        """Count forgotten keys from zero: recovery is over."""
        self.forgotten = 0

    def dump(self) -> Any:
        """None if there are no keys: then a snapshot says nothing about them, as it did in older releases.

        There may be a million of them: what they are is not copied here.
        """
        topics: list[Part] = []
        count = 0
        for topic in sorted(self._holders, key=lambda topic: topic.id):
            keys = self._holders[topic]
            chunks = keys.dump()
            if chunks:
                count += 1
                topics += [array_head(len(TopicKeysState.__struct_fields__)), _pack(topic.id)]
                topics += [_pack(keys.over_before_ms), _pack(keys.forgotten_ms), array_head(len(chunks))]
                for gone, digests, rows in chunks:
                    topics += [array_head(3), _pack(gone), bytes_head(len(digests)), digests]
                    topics += [bytes_head(len(rows)), rows]
        head = [array_head(len(KeysState.__struct_fields__)), _pack(self.salt), array_head(count)]
        return EncodedState([*head, *topics]) if count else None

    def load(self, state: Any) -> None:
        loaded = _state.decode(msgspec.msgpack.encode(state))
        self.use_salt(loaded.salt)
        for saved in loaded.topics:
            topic = self._find(saved.topic_id)
            if topic is not None:
                keys = self.of(topic)
                keys.load(saved.chunks, saved.over_before_ms, saved.forgotten_ms)

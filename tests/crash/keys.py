"""Idempotency keys in simulated worlds: each is remembered exactly as long as the records written with it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.crash.effects import Effect, TopicModel
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.idempotency import _PLACES

# Few, so that they come again.
KEYS = ("k0", "k1", "k2", "k3")

Answer = tuple[int, int]


@dataclass(slots=True, frozen=True)
class Keyed:
    """First seq and number of the records that were written with a key, and when."""

    answer: Answer
    ts: int
    is_volatile: bool


class Remembers(Effect):
    """Part of the event that adds the records: after a crash both are there, or neither is."""

    __slots__ = ("_before", "key", "keyed", "topic")

    def __init__(self, topic: TopicModel, key: str, keyed: Keyed) -> None:
        self.topic = topic
        self.key = key
        self.keyed = keyed
        self._before: Keyed | None = None

    def apply(self) -> None:
        self._before = self.topic.keys.get(self.key)
        self.topic.keys[self.key] = self.keyed
        self.topic.keys_ever.add((self.key, self.keyed.answer))

    def undo(self) -> None:
        if self._before is None:
            del self.topic.keys[self.key]
        else:
            self.topic.keys[self.key] = self._before


def remembered(topic: TopicModel, now: int) -> dict[str, Answer]:
    """What a retry must be told, by its key."""
    window_ms = topic.config.idempotency_window_ms
    return {
        key: keyed.answer
        for key, keyed in topic.keys.items()
        if now - keyed.ts <= window_ms and not keyed.is_volatile
    }


def known_keys(engine: Engine, topic: Topic) -> dict[str, Answer]:
    """What retries would be told, without making one."""
    answers = {}
    for key in KEYS:
        answer = _answer(engine, topic, key)
        if answer is not None:
            answers[key] = answer
    return answers


def _answer(engine: Engine, topic: Topic, key: str) -> Answer | None:
    keys = topic.keys
    if keys is None:
        return None
    hasher = engine.keys.hasher.copy()
    hasher.update(key.encode())
    chunk = keys._by_place.get(hash(hasher.digest()) & _PLACES)
    at = -1 if chunk is None else chunk.find(hasher.digest())
    if chunk is None or at < 0 or chunk.time(at) < keys.since(engine.now()):
        return None
    answer = chunk.answer(at)
    return answer if answer[0] <= topic.head else None

"""Idempotency keys in simulated worlds: each is remembered exactly as long as the records written with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.crash.effects import Effect, TopicModel
from topics.log.engine import Engine
from topics.log.topic import Topic

# Few, so that they come again.
KEYS = ("k0", "k1", "k2", "k3")

# A key of then is over.
NEVER_MS = 1 << 60

Answer = tuple[int, int]


@dataclass(slots=True, frozen=True)
class Keyed:
    """First seq and number of the records that were written with a key, and when."""

    answer: Answer
    ts: int
    is_volatile: bool

    def set_back(self, window_ms: int, shown_ms: int, now_ms: int) -> Keyed:
        """Over for ever, if it is by now; else no later than what time it is from here on."""
        is_over = shown_ms - self.ts > window_ms
        return replace(self, ts=-NEVER_MS if is_over else min(self.ts, now_ms))


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

    def set_back(self, shown_ms: int, now_ms: int) -> None:
        window_ms = self.topic.config.idempotency_window_ms
        self.keyed = self.keyed.set_back(window_ms, shown_ms, now_ms)
        self._before = self._before and self._before.set_back(window_ms, shown_ms, now_ms)

    def undo(self) -> None:
        if self._before is None:
            del self.topic.keys[self.key]
        else:
            self.topic.keys[self.key] = self._before


def set_back_keys(topic: TopicModel, shown_ms: int, now_ms: int) -> None:
    window_ms = topic.config.idempotency_window_ms
    topic.keys = {key: keyed.set_back(window_ms, shown_ms, now_ms) for key, keyed in topic.keys.items()}


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
    answer = keys.find(keys.digest(key.encode()), engine.now())
    return answer if answer is not None and answer[0] <= topic.head else None

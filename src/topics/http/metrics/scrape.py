"""One look at all topics, shared by everything that has figures about them."""

import asyncio

from topics.http.door.keys import ApiKey
from topics.log import Engine, Topic
from topics.values import CLASSES

# Topics looked at before others get their turn: about a millisecond.
_SLICE = 2048


class Scrape:
    """What is named after a topic is shown only to a key that may know the topic; sums are over all."""

    __slots__ = ("by_class", "key", "known", "queues", "topic_count")

    def __init__(self, key: ApiKey | None) -> None:
        self.key = key
        self.topic_count = 0
        self.by_class: dict[str, int] = dict.fromkeys(CLASSES, 0)
        # The first topics this key may know, and one more than can be shown if there are more.
        self.known: list[Topic] = []
        # Queues, and how many of their jobs are ready, in flight, and given up.
        self.queues: list[tuple[Topic, dict[str, int]]] = []

    @classmethod
    async def of(cls, engine: Engine, key: ApiKey | None, most_known: int) -> "Scrape":
        """There may be a hundred thousand topics, and requests that should not wait for this."""
        scrape = cls(key)
        # Recovery owns the topics until it is done.
        names = list(engine.sorted_names) if engine.recovered else []
        for start in range(0, len(names), _SLICE):
            if start:
                await asyncio.sleep(0)
            scrape._add(engine, names[start : start + _SLICE], most_known)
        return scrape

    def _add(self, engine: Engine, names: list[str], most_known: int) -> None:
        for name in names:
            topic = engine.find(name)
            if topic is None:
                continue  # gone since we began
            config = topic.config
            if config.ttl_ms:
                engine.refresh(topic)
            self.topic_count += 1
            self.by_class[config.durability] += 1
            if config.type == "queue":
                self.queues.append((topic, topic.extension.counters()))
            if len(self.known) <= most_known and self.may_know(name):
                self.known.append(topic)

    def may_know(self, name: str) -> bool:
        return self.key is None or self.key.allows(name)

    def jobs(self, state: str) -> int:
        return sum(counts[state] for _, counts in self.queues)

"""A node as route handlers see it, and how answers are timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import msgspec

from topics.flow.governor import SHED_FROM_MS
from topics.http.door.keys import ApiKey
from topics.http.wire.exchange import Exchange
from topics.log.topic import Topic
from topics.node.node import Node
from topics.values.config import TopicConfig
from topics.values.errors import ApiError
from topics.values.priority import FRESH, effective_priority


class Parked(Protocol):
    def release(self) -> None: ...


class Service:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.engine = node.engine
        self.settings = node.settings
        self.governor = node.governor
        self.pacer = node.pacer
        # Brings a destination up to date with what its routers owe, before it is read.
        self.pull = node.routers.pull
        # Long-polls in waiting; they are answered when the server stops.
        self.parked: set[Parked] = set()

    def refuse_under_pressure(self, name: str) -> None:
        """The last step of load shedding: 429 for topics whose priority is too low for the current lag."""
        if self.governor.lag_ms >= SHED_FROM_MS:
            topic = self.engine.find(name)
            now = self.engine.now()
            priority = effective_priority(topic.config, topic.last_read_ts, now) if topic is not None else 0
            self.governor.check(priority)

    def waits_its_turn(self, exchange: Exchange, work: Callable[[Exchange], None]) -> bool:
        """True when this request is put aside because a topic that matters more is being read."""
        topic = self.engine.find(exchange.name)
        now = self.engine.now()
        priority = effective_priority(topic.config, topic.last_read_ts, now) if topic is not None else 0
        # Whoever asks not to be refused waits as long as it takes.
        patient = b"disable_backpressure" in exchange.body
        return self.pacer.holds(
            priority, len(exchange.body), partial(_resume, exchange, work), patient=patient
        )

    def note_read(self, topic: Topic) -> None:
        """A client reads this topic now: that raises its priority, and others make way for it."""
        topic.last_read_ts = self.engine.now()
        config = topic.config
        self.pacer.protect(
            config.priority or (FRESH if config.auto_priority and config.priority is None else 0)
        )

    def topic(self, exchange: Exchange) -> Topic:
        return self.engine.require(exchange.name)

    def current_topic(self, exchange: Exchange) -> Topic:
        """The topic as it stands now: with what routers owe it, and without what is too old."""
        topic = self.topic(exchange)
        self.bring_up_to_date(topic)
        return topic

    def bring_up_to_date(self, topic: Topic) -> None:
        self.pull(topic)
        self.engine.refresh(topic)


def _resume(exchange: Exchange, work: Callable[[Exchange], None]) -> None:
    if exchange.closed:
        return
    try:
        work(exchange)
    except Exception as error:
        exchange.fail_with(error)


def elapsed_ms(exchange: Exchange) -> float:
    return (perf_counter() - exchange.started) * 1000


def answer(exchange: Exchange, body: dict[str, Any], status: int = 200, **performance: float) -> None:
    """A success: the data itself, and how long it took."""
    body["performance"] = {"server_total_ms": round(elapsed_ms(exchange), 3), **performance}
    exchange.reply(msgspec.json.encode(body), status)


def check_dead_letter(key: ApiKey | None, config: TopicConfig) -> None:
    """Records move to the dead-letter topic by themselves: a key must not send them where it may not go."""
    if config.dead_letter is not None:
        check_name(key, config.dead_letter)


def check_name(key: ApiKey | None, name: str) -> None:
    """For names in bodies and queries; those in paths are checked before there is a body."""
    if key is not None and not key.allows(name):
        raise ApiError("forbidden", f'this key may not use the name "{name}"', {"topic": name})

"""A node as route handlers see it, and how answers are timed."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol, TypeVar

import msgspec

from topics.core import ApiError, TopicConfig
from topics.engine.node import Node
from topics.http.admission.auth import ApiKey
from topics.http.exchange import Exchange
from topics.log import Steps, Topic

Result = TypeVar("Result")


class Parked(Protocol):
    @property
    def key(self) -> ApiKey | None: ...

    def release(self) -> None: ...


class Service:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.engine = node.engine
        self.settings = node.settings
        self.admission = node.admission
        # Brings a destination up to date with what its routers owe, before it is read.
        self.pull = node.routers.pull
        # Long-polls in waiting; they are answered when the server stops.
        self.parked: set[Parked] = set()

    def enter_with_copies(
        self, exchange: Exchange, name: str, _size: int, work: Callable[[Exchange], None]
    ) -> None:
        """Call `work` when the topic has the copies that its routers owe it."""
        self.admission.read_copied(exchange, name, work)

    def topic(self, exchange: Exchange) -> Topic:
        """The topic in the path, for a request with which nothing else is wrong: that it is not there is told
        before what the request misnames."""
        topic = self.engine.require(exchange.name)
        if exchange.unknown_fields is not None:
            exchange.refuse_unknown_fields()
        return topic

    def current_topic(self, exchange: Exchange) -> Topic:
        """To be told about; reading its records is another door."""
        topic = self.topic(exchange)
        self.admission.bring_up_to_date(topic)
        return topic


def elapsed_ms(exchange: Exchange) -> float:
    return (perf_counter() - exchange.started) * 1000


def answer(exchange: Exchange, body: dict[str, Any], status: int = 200, **performance: float) -> None:
    """A success: the data itself, and how long it took."""
    body["performance"] = {"server_total_ms": round(elapsed_ms(exchange), 3), **performance}
    exchange.reply(msgspec.json.encode(body), status)


async def in_turns(steps: Steps[Result]) -> Result:
    """Between two steps, others have their turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)


def check_dead_letter(key: ApiKey | None, config: TopicConfig) -> None:
    """Records move to the dead-letter topic by themselves: a key must not send them where it may not go."""
    if config.dead_letter is not None:
        check_name(key, config.dead_letter)


def check_name(key: ApiKey | None, name: str) -> None:
    """For names in bodies and queries; those in paths are checked before there is a body."""
    if key is not None and not key.allows(name):
        raise ApiError("forbidden", f'this key may not use the name "{name}"', {"topic": name})

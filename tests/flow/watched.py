"""Topics that are watched, and watchers that write down what they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.log.harness import Lab
from topics.flow.load_shedder import LoadShedder
from topics.flow.watch.delivery import Delivery, Subscription, WatchOptions
from topics.flow.watch.fanout import Fanout
from topics.log.topic import Topic

OPTIONS = WatchOptions(limit=1000, max_bytes=1 << 20, names_first_gap=True)
Told = list[tuple[str, Any]]


class Listener:
    """A watcher that writes down what it is told."""

    def __init__(self) -> None:
        self.stalled = False
        self.deliveries: list[Delivery] = []
        self.told: Told = []
        self.cursors: list[int] = []
        self.over: list[str] = []

    def deliver(self, subscription: Subscription, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        for event in delivery.events:
            body = json.loads(b"{%b}" % event.body)
            self.told.append((event.kind, _gist(event.kind, body)))
            self.cursors.append(event.seq)

    def ended(self, subscription: Subscription) -> None:
        self.over.append(subscription.name)

    def heard(self) -> Told:
        """What was told since the last time somebody asked."""
        told, self.told = self.told, []
        return told


def _gist(kind: str, body: dict[str, Any]) -> Any:
    if kind == "record":
        assert set(body) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
        return [record["$seq"] for record in body["records"]]
    if kind == "tombstone":
        named = {"previous_epoch"} if body["reason"] == "recreated" else set()
        assert set(body) == {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"} | named
        return body["gap_from"], body["gap_to"], body["reason"]
    assert set(body) == {"topic", "head_seq"} | ({"reason"} if kind == "topic-deleted" else set())
    return body["head_seq"]


class Watched:
    """A lab whose topics are watched; `settle` lets the loop do everything that is due."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pulled: list[Topic] = []
        self.load_shedder = LoadShedder()
        self.fanout = Fanout(lab.engine, self.pulled.append, self.load_shedder)

    def watch(
        self, name: str = "t", seq: int = 0, options: WatchOptions = OPTIONS, epoch: int | None = None
    ) -> tuple[Listener, Subscription]:
        listener = Listener()
        if epoch is None:
            epoch = self.lab.topic(name).id
        subscription = Subscription(listener, name, options, seq=seq, epoch=epoch)
        self.fanout.attach(subscription)
        return listener, subscription

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


Scenario = Callable[[Watched], Awaitable[None]]

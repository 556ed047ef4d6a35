"""Everybody who watches one topic instance, served in rounds that may be interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from topics.flow.watch.subscription import Options, Step, Subscription, Watcher, next_step
from topics.flow.watch.synced_head import SyncedHead
from topics.log.topic import Topic

if TYPE_CHECKING:
    from topics.flow.watch.fanout import Fanout

# A large page counts for more than one delivery.
WORK_BYTES = 16 * 1024

_Place = tuple[int, int, bool, bool, Options]


class Feed:
    __slots__ = (
        "_behind",
        "_fanout",
        "_round",
        "_stirred",
        "_synced",
        "deferred_since",
        "queued",
        "subscriptions",
        "topic",
    )

    def __init__(self, fanout: Fanout, topic: Topic) -> None:
        self._fanout = fanout
        self.topic = topic
        # Dictionaries keep the order of arrival and forget in one step.
        self.subscriptions: dict[Subscription, None] = {}
        # Those with more to read; the others wait for the topic to move.
        self._behind: dict[Subscription, None] = {}
        self._round: Iterator[Subscription] | None = None
        self._stirred = False
        self._synced: SyncedHead | None = None
        # Waiting for its turn, or put aside for a while.
        self.queued = False
        self.deferred_since: float | None = None

    @property
    def unfinished(self) -> bool:
        return self._round is not None or self._stirred or bool(self._behind)

    def wake(self) -> None:
        self._stirred = True
        self._fanout.enqueue(self)

    def add(self, subscription: Subscription) -> None:
        subscription.feed = self
        self.subscriptions[subscription] = None
        self.catch_up(subscription)

    def remove(self, subscription: Subscription) -> None:
        subscription.feed = None
        subscription.head = self.topic.head
        del self.subscriptions[subscription]
        self._behind.pop(subscription, None)

    def catch_up(self, subscription: Subscription) -> None:
        self._behind[subscription] = None
        self._fanout.enqueue(self)

    def give_up_round(self) -> None:
        self._round = None
        self._behind.clear()

    def serve(self, work: int) -> int:
        """Go on with the round, or begin one, until `work` is used up; returns how much was."""
        engine, topic = self._fanout.engine, self.topic
        if self._round is None:
            self._begin_round()
        assert self._round is not None
        topic.last_read_ts = engine.now()
        # Only for this turn: in the next one the topic may have moved.
        steps: dict[_Place, Step] = {}
        used = 0
        for subscription in self._round:
            watcher = subscription.watcher
            if watcher.stalled or subscription.feed is not self:
                continue
            if topic.dropped:
                self._follow(subscription)
            elif not subscription.at_rest(topic):
                used += self._advance(subscription, watcher, steps)
            if used >= work:
                return used
        self._round = None
        return used

    def _begin_round(self) -> None:
        if self._stirred:
            self._fanout.pull(self.topic)
            # After the pull, which may well have woken us again.
            self._stirred = False
            members = list(self.subscriptions)
        else:
            members = list(self._behind)
        self._behind.clear()
        self._round = iter(members)

    def _advance(self, subscription: Subscription, watcher: Watcher, steps: dict[_Place, Step]) -> int:
        options = subscription.options
        place = (subscription.seq, subscription.epoch, subscription.level, subscription.fresh, options)
        step = steps.get(place)
        if step is None:
            upto = self._synced_head() if options.strong else None
            step = steps[place] = next_step(self._fanout.engine, self.topic, subscription, upto)
        if step.events or step.seq != subscription.seq:
            watcher.deliver(subscription, step)
            self.topic.totals.served("stream", step.count, step.gap)
        subscription.move(step)
        if step.more and not watcher.stalled:
            self._behind[subscription] = None
        return 1 + step.size // WORK_BYTES

    def _follow(self, subscription: Subscription) -> None:
        """The instance is gone: go on in the one that took the name, or say so and stop."""
        fanout = self._fanout
        fanout.detach(subscription)
        fanout.attach(subscription)

    def _synced_head(self) -> int:
        if self._synced is None:
            self._synced = SyncedHead(self._fanout.engine, self.topic)
        return self._synced.seq(self.wake)

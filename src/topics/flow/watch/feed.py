"""All watchers of one topic instance, served in rounds that may be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topics.flow.watch.subscription import Delivery, Subscription, Watcher, WatchOptions, next_delivery
from topics.log import CallbackOp, Engine, Topic
from topics.values import ApiError

if TYPE_CHECKING:
    from topics.flow.watch.fanout import Fanout

# A large page counts for more than one delivery.
WORK_BYTES = 16 * 1024

_Place = tuple[int, int, bool, bool, WatchOptions]


@dataclass(slots=True, eq=False)
class Feed:
    _fanout: Fanout
    topic: Topic
    # Dictionaries keep the order of arrival and forget at once.
    subscriptions: dict[Subscription, None] = field(default_factory=dict)
    # Subscriptions with more to read; the others wait for the topic to move.
    _behind: dict[Subscription, None] = field(default_factory=dict)
    _round: Iterator[Subscription] | None = None
    _stirred: bool = False
    _synced: SyncedHead | None = None
    # Waiting for its turn, or put aside for a while.
    queued: bool = False
    deferred_since: float | None = None

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
        topic.read_at(engine.now())
        # Only for this turn: in the next one the topic may have moved.
        deliveries: dict[_Place, Delivery] = {}
        used = 0
        for subscription in self._round:
            watcher = subscription.watcher
            if watcher.stalled or subscription.feed is not self:
                continue
            if topic.dropped:
                self._follow(subscription)
            elif not subscription.at_rest(topic):
                used += self._advance(subscription, watcher, deliveries)
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

    def _advance(
        self, subscription: Subscription, watcher: Watcher, deliveries: dict[_Place, Delivery]
    ) -> int:
        options = subscription.options
        place = (subscription.seq, subscription.epoch, subscription.level, subscription.fresh, options)
        delivery = deliveries.get(place)
        if delivery is None:
            upto = self._synced_head() if options.strong else None
            delivery = deliveries[place] = next_delivery(self._fanout.engine, self.topic, subscription, upto)
        if delivery.events or delivery.seq != subscription.seq:
            watcher.deliver(subscription, delivery)
            self.topic.totals.served("stream", delivery.count, delivery.gap)
        subscription.move(delivery)
        if delivery.more and not watcher.stalled:
            self._behind[subscription] = None
        return 1 + delivery.size // WORK_BYTES

    def _follow(self, subscription: Subscription) -> None:
        """The instance is gone: go on in the one that took the name, or say so and stop."""
        fanout = self._fanout
        fanout.detach(subscription)
        fanout.attach(subscription)

    def _synced_head(self) -> int:
        if self._synced is None:
            self._synced = SyncedHead(self._fanout.engine, self.topic)
        return self._synced.seq(self.wake)


class SyncedHead:
    """How much of a topic is known to be on disk; asks for a sync when that is not everything.

    For watchers that want nothing a power failure could take back.
    """

    def __init__(self, engine: Engine, topic: Topic) -> None:
        self._engine = engine
        self._topic = topic
        self._seq = 0
        self._asked = False

    def seq(self, wake: Callable[[], None]) -> int:
        """`wake` is called when there is more."""
        journal, head = self._engine.journal, self._topic.head
        if journal.synced >= journal.position:
            # Whatever is visible is in the journal.
            self._seq = head
        elif head > self._seq and not self._asked:
            self._ask(head, wake)
        return self._seq

    def _ask(self, head: int, wake: Callable[[], None]) -> None:
        def done(_: object) -> None:
            self._asked = False
            self._seq = max(self._seq, head)
            wake()

        def fail(_: ApiError) -> None:
            # Writes are latched off; what is not on disk now never will be.
            return None

        try:
            self._engine.queue.submit(CallbackOp([], None, done, fail, sync=True))
            self._asked = True
        except ApiError:
            pass

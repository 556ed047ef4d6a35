"""From a topic that moved to all its watchers.

    commit ─▶ topic.wake ─▶ feed queued once ─▶ a turn of the loop serves some of its watchers ─▶ next turn …

No watcher has a task or a timer of its own. A turn does a bounded amount of work and then lets the loop look
at its sockets; records that arrive meanwhile go out together with the ones still owed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

from topics.flow.governor import Governor, Level
from topics.flow.watch.others_records import CommonDelivery
from topics.flow.watch.subscription import (
    Delivery,
    Place,
    Subscription,
    Watcher,
    WatchOptions,
    last_delivery,
)
from topics.log import CallbackOp, Engine, Topic
from topics.values import ApiError

# A large page counts for more than one delivery.
WORK_BYTES = 16 * 1024

_Deliveries = dict[tuple[int, int, bool, bool, WatchOptions], CommonDelivery]


@dataclass(slots=True, eq=False)
class Feed:
    _fanout: "Fanout"
    topic: Topic
    # Dictionaries keep the order of arrival and forget at once.
    subscriptions: dict[Subscription, None] = field(default_factory=dict)
    # Subscriptions with more to read; the others wait for the topic to move.
    _behind: dict[Subscription, None] = field(default_factory=dict)
    _round: Iterator[Subscription] | None = None
    _stirred: bool = False
    _synced: "SyncedHead | None" = None
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

    def serve(self, work: int, until_s: float) -> int:
        """Go on with the round, or begin one, until `work` is used up or it is time; returns work done."""
        engine, topic = self._fanout.engine, self.topic
        if self._round is None:
            self._begin_round()
        assert self._round is not None
        engine.note_read(topic)
        # Only for this turn: in the next one the topic may have moved.
        deliveries: _Deliveries = {}
        used = 0
        for subscription in self._round:
            watcher = subscription.watcher
            if watcher.stalled or subscription.feed is not self:
                continue
            if topic.dropped:
                self._follow(subscription)
            elif not subscription.at_rest(topic):
                used += self._advance(subscription, watcher, deliveries)
            if used >= work or perf_counter() >= until_s:
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

    def _advance(self, subscription: Subscription, watcher: Watcher, deliveries: _Deliveries) -> int:
        delivery = self._next_delivery(subscription, deliveries)
        if delivery.events or delivery.seq != subscription.seq:
            watcher.deliver(subscription, delivery)
            self.topic.totals.served("stream", delivery.count)
            if delivery.gap is not None:
                self.topic.totals.told(self.topic.name, delivery.gap, delivery.missed)
        subscription.move(delivery)
        if delivery.more and not watcher.stalled:
            self._behind[subscription] = None
        return 1 + delivery.size // WORK_BYTES

    def _next_delivery(self, subscription: Subscription, deliveries: _Deliveries) -> Delivery:
        nodes = subscription.options.nodes
        if nodes is None:
            return self._at_place(subscription, subscription.options, deliveries).delivery
        # Close to the head one page has everything, whoever reads it.
        if self.topic.head - subscription.seq <= subscription.options.limit:
            common = self._at_place(subscription, subscription.for_all, deliveries)
            if common.is_whole:
                return common.without(nodes) if self.topic.config.dedupe_node else common.delivery
        return self._at_place(subscription, subscription.options, deliveries).delivery

    def _at_place(
        self, subscription: Subscription, options: WatchOptions, deliveries: _Deliveries
    ) -> CommonDelivery:
        place = (subscription.seq, subscription.epoch, subscription.level, subscription.fresh, options)
        common = deliveries.get(place)
        if common is None:
            upto = self._synced_head() if options.strong else None
            common = deliveries[place] = CommonDelivery(
                self._fanout.engine, self.topic, Place._make(place), upto
            )
        return common

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


log = logging.getLogger("topics.fanout")

# Deliveries in one turn: about a millisecond or two, which is what a write may have to wait behind them.
TURN_WORK = 256
# Or so long: a delivery to a stream of hundreds of topics takes longer, because it names the places of all.
TURN_S = 0.02
# What a feed may use before another one gets its turn, by effective priority: (from, share of a turn).
SHARES = ((750, 1.0), (500, 0.5), (250, 0.25))
LEAST_SHARE = 0.125
# Under pressure, turns come later, so that more records travel in each frame.
MERGE_S = 0.005
# Low priorities wait while the server struggles, but not for ever.
DEFER_S = 0.1
LONGEST_DEFER_S = 10.0


class Fanout:
    def __init__(
        self,
        engine: Engine,
        pull: Callable[[Topic], None],
        governor: Governor,
        protect: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`pull` brings a topic up to date with what is on its way into it; `protect` hears what priority is
        being delivered."""
        self.engine = engine
        self.pull = pull
        self._governor = governor
        self._protect = protect
        self.feeds: dict[Topic, Feed] = {}
        self._queue: deque[Feed] = deque()
        self._scheduled = False

    def attach(self, subscription: Subscription) -> None:
        """Serve it from the next turn on, in whatever instance the name has now."""
        topic = self.engine.find(subscription.name)
        if topic is None:
            subscription.watcher.deliver(subscription, last_delivery(subscription))
            subscription.watcher.ended(subscription)
            return
        feed = self.feeds.get(topic)
        if feed is None:
            feed = self.feeds[topic] = Feed(self, topic)
            topic.listeners.append(feed.wake)
        feed.add(subscription)

    def detach(self, subscription: Subscription) -> None:
        feed = subscription.feed
        if feed is None:
            return
        feed.remove(subscription)
        if not feed.subscriptions:
            del self.feeds[feed.topic]
            feed.topic.listeners.remove(feed.wake)

    def resume(self, subscriptions: Iterable[Subscription]) -> None:
        """Their watcher has room again."""
        for subscription in subscriptions:
            if subscription.feed is not None:
                subscription.feed.catch_up(subscription)

    def enqueue(self, feed: Feed) -> None:
        if not feed.queued:
            feed.queued = True
            self._queue.append(feed)
            self._schedule()

    def _schedule(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if self._governor.level >= Level.MERGE:
            loop.call_later(MERGE_S, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Feeds take turns too: one that has more to do goes to the back of the queue."""
        work, until_s = TURN_WORK, perf_counter() + TURN_S
        while self._queue and work > 0 and perf_counter() < until_s:
            feed = self._queue.popleft()
            feed.queued = False
            # Its watchers may have left while it waited, and the engine with them.
            if not feed.subscriptions or self._defers(feed):
                continue
            try:
                priority = self._priority(feed)
                self._protect(priority)
                work -= feed.serve(min(work, int(TURN_WORK * _share(priority))), until_s)
            except Exception:
                log.exception("serving the watchers of %s failed", feed.topic.name)
                feed.give_up_round()
            # A visit that found nothing to do still took a moment.
            work -= 1
            if feed.unfinished:
                self.enqueue(feed)
        self._scheduled = False
        if self._queue:
            self._schedule()

    def _priority(self, feed: Feed) -> int:
        topic = feed.topic
        return self.engine.priority_of(topic)

    def _defers(self, feed: Feed) -> bool:
        """Put it aside when it can wait and the server cannot keep up."""
        if not self._governor.defers(self._priority(feed)):
            feed.deferred_since = None
            return False
        loop = asyncio.get_running_loop()
        if feed.deferred_since is None:
            feed.deferred_since = loop.time()
        elif loop.time() - feed.deferred_since >= LONGEST_DEFER_S:
            return False
        feed.queued = True
        loop.call_later(DEFER_S, self._requeue, feed)
        return True

    def _requeue(self, feed: Feed) -> None:
        self._queue.append(feed)
        self._schedule()


def _share(priority: int) -> float:
    return next((share for least, share in SHARES if priority >= least), LEAST_SHARE)

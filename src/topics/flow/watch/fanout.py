"""From a topic that moved to all its watchers.

    commit ─▶ topic.wake ─▶ feed queued once ─▶ a turn of the loop serves some of its watchers ─▶ next turn …

No watcher has a task or a timer of its own. A turn does a bounded amount of work and then lets the loop look
at its sockets; records that arrive meanwhile go out together with the ones still owed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from topics.flow.governor import Governor, Level
from topics.flow.watch.feed import Feed
from topics.flow.watch.subscription import Subscription, last_delivery
from topics.log import Engine, Topic
from topics.values import effective_priority

log = logging.getLogger("topics.fanout")

# Deliveries in one turn: about a millisecond or two, which is what a write may have to wait behind them.
TURN_WORK = 256
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
        work = TURN_WORK
        while self._queue and work > 0:
            feed = self._queue.popleft()
            feed.queued = False
            # Its watchers may have left while it waited, and the engine with them.
            if not feed.subscriptions or self._defers(feed):
                continue
            try:
                priority = self._priority(feed)
                self._protect(priority)
                work -= feed.serve(min(work, int(TURN_WORK * _share(priority))))
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
        return effective_priority(topic.config, topic.last_read_ts, self.engine.now())

    def _defers(self, feed: Feed) -> bool:
        """Put it aside when it can wait and the server cannot keep up."""
        loop = asyncio.get_running_loop()
        if not self._governor.defers(self._priority(feed)):
            feed.deferred_since = None
            return False
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

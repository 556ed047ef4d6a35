"""From a topic that moved to all of its watchers.

    commit ─▶ topic.wake ─▶ mark (each topic once) ─▶ deliver_turn: serve some watchers of it ─▶ next turn …

Watchers have no tasks and timers of their own. A turn does a bounded amount of work, and then the loop looks
at its sockets. Records that arrive meanwhile go out together with records that are still due.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from topics.core import ApiError
from topics.flow.load_shedder import Level, LoadShedder
from topics.flow.watch.delivery import (
    Delivery,
    DeliveryKey,
    DeliveryPage,
    Subscription,
    WatchOptions,
    last_delivery,
)
from topics.log import CallbackOp, Engine, Topic

log = logging.getLogger("topics.fanout")

# A large page counts for more than one delivery.
WORK_BYTES = 16 * 1024
# Deliveries in one turn: one or two milliseconds, which a write may have to wait.
TURN_WORK = 256
# The longest turn: a delivery to a stream of hundreds of topics takes longer, because its id names them all.
TURN_S = 0.02
# The share of a turn that one topic may use before another gets one, by effective priority: (from, share).
SHARES = ((750, 1.0), (500, 0.5), (250, 0.25))
LEAST_SHARE = 0.125
# Under pressure, turns come later, so that each frame carries more records.
MERGE_S = 0.005
# Low priorities wait while the server is overloaded, but not for ever.
DEFER_S = 0.1
LONGEST_DEFER_S = 10.0

_Pages = dict[tuple[int, int, bool, bool, WatchOptions], DeliveryPage]


@dataclass(slots=True, eq=False)
class TopicFanout:
    """The watchers of one topic, and which of them are still to be served."""

    _fanout: "Fanout"
    topic: Topic
    # Dictionaries keep the order of arrival and forget at once.
    subscriptions: dict[Subscription, None] = field(default_factory=dict)
    # Subscriptions with more to read; the others wait for the topic to move.
    _behind: dict[Subscription, None] = field(default_factory=dict)
    _round: Iterator[Subscription] | None = None
    _has_moved: bool = False
    # The head as far as it is known to be on disk, and whether a sync was asked for.
    _synced_seq: int = 0
    _is_syncing: bool = False
    # Waiting for its turn, or deferred.
    marked: bool = False
    deferred_since: float | None = None

    @property
    def unfinished(self) -> bool:
        return self._round is not None or self._has_moved or bool(self._behind)

    def wake(self) -> None:
        self._has_moved = True
        self._fanout.mark(self)

    def add(self, subscription: Subscription) -> None:
        subscription.fanout = self
        self.subscriptions[subscription] = None
        self.catch_up(subscription)

    def remove(self, subscription: Subscription) -> None:
        subscription.fanout = None
        subscription.head = self.topic.head
        del self.subscriptions[subscription]
        self._behind.pop(subscription, None)

    def catch_up(self, subscription: Subscription) -> None:
        self._behind[subscription] = None
        self._fanout.mark(self)

    def give_up_round(self) -> None:
        self._round = None
        self._behind.clear()

    def serve(self, work: int, until_s: float) -> int:
        """Go on with the round, or begin one, until `work` or the time is used up; return the work done."""
        topic = self.topic
        if self._round is None:
            members = self._behind
            if self._has_moved:
                self._fanout.pull(topic)
                # After the pull, which may have woken this fan-out again.
                self._has_moved = False
                members = self.subscriptions
            self._round = iter(list(members))
            self._behind.clear()
        self._fanout.engine.note_read(topic)
        # Only for this turn: in the next one the topic may have moved.
        pages: _Pages = {}
        used = 0
        for subscription in self._round:
            watcher = subscription.watcher
            if watcher.stalled or subscription.fanout is not self:
                continue
            if topic.dropped:
                # Go on in the topic that took the name, or report the end.
                self._fanout.detach(subscription)
                self._fanout.attach(subscription)
            elif (
                subscription.seq != topic.head or not subscription.caught_up or subscription.epoch != topic.id
            ):
                delivery = self._delivery(subscription, pages)
                if delivery.events or delivery.seq != subscription.seq:
                    watcher.deliver(subscription, delivery)
                    topic.totals.served("stream", delivery.count)
                    if delivery.gap is not None:
                        topic.totals.told(topic.name, delivery.gap, delivery.missed)
                subscription.move(delivery)
                if delivery.more and not watcher.stalled:
                    self._behind[subscription] = None
                used += 1 + delivery.size // WORK_BYTES
            if used >= work or perf_counter() >= until_s:
                return used
        self._round = None
        return used

    def _delivery(self, subscription: Subscription, pages: _Pages) -> Delivery:
        options = subscription.options
        nodes = options.nodes
        # Near the head, one page has everything, whichever nodes a subscription leaves out.
        if nodes is not None and self.topic.head - subscription.seq <= options.limit:
            page = self._page(subscription, subscription.for_all, pages)
            if page.is_whole:
                return page.without(nodes) if self.topic.config.dedupe_node else page.delivery
        return self._page(subscription, options, pages).delivery

    def _page(self, subscription: Subscription, options: WatchOptions, pages: _Pages) -> DeliveryPage:
        # A plain tuple is made without a call, and equals the named one.
        key = subscription.seq, subscription.epoch, subscription.caught_up, subscription.fresh, options
        page = pages.get(key)
        if page is None:
            upto = self._synced_head() if options.strong else None
            page = pages[key] = DeliveryPage(self._fanout.engine, self.topic, DeliveryKey(*key), upto)
        return page

    def _synced_head(self) -> int:
        """Return the head as far as it is known to be on disk; ask for a sync when that lags behind.

        For watchers that want no record that a power failure could take back.
        """
        engine, head = self._fanout.engine, self.topic.head
        if engine.journal.synced >= engine.journal.position:
            # Every visible record is in the journal.
            self._synced_seq = head
        elif head > self._synced_seq and not self._is_syncing:
            # If writes are off, a record that is not on disk now never will be.
            with suppress(ApiError):
                done = partial(self._note_synced, head)
                engine.queue.submit(CallbackOp([], None, done, lambda _: None, sync=True))
                self._is_syncing = True
        return self._synced_seq

    def _note_synced(self, head: int, _: object) -> None:
        self._is_syncing = False
        self._synced_seq = max(self._synced_seq, head)
        self.wake()


class Fanout:
    def __init__(
        self,
        engine: Engine,
        pull: Callable[[Topic], None],
        load_shedder: LoadShedder,
        protect: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`pull` makes the copies that routers owe to a topic; `protect` gets the priority of a delivery."""
        self.engine = engine
        self.pull = pull
        self._load_shedder = load_shedder
        self._protect = protect
        self.topics: dict[Topic, TopicFanout] = {}
        self._queue: deque[TopicFanout] = deque()
        self._scheduled = False

    def attach(self, subscription: Subscription) -> None:
        """Serve it from the next turn on, in the topic that has the name now."""
        topic = self.engine.find(subscription.name)
        if topic is None:
            subscription.watcher.deliver(subscription, last_delivery(subscription))
            subscription.watcher.ended(subscription)
            return
        fanout = self.topics.get(topic)
        if fanout is None:
            fanout = self.topics[topic] = TopicFanout(self, topic)
            topic.listeners.append(fanout.wake)
        fanout.add(subscription)

    def detach(self, subscription: Subscription) -> None:
        fanout = subscription.fanout
        if fanout is None:
            return
        fanout.remove(subscription)
        if not fanout.subscriptions:
            del self.topics[fanout.topic]
            fanout.topic.listeners.remove(fanout.wake)

    def resume(self, subscriptions: Iterable[Subscription]) -> None:
        """Go on with subscriptions whose watcher has room again."""
        for subscription in subscriptions:
            if subscription.fanout is not None:
                subscription.fanout.catch_up(subscription)

    def mark(self, fanout: TopicFanout) -> None:
        """Give the topic a turn."""
        if not fanout.marked:
            fanout.marked = True
            self._queue.append(fanout)
            if not self._scheduled:
                self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if self._load_shedder.level >= Level.MERGE:
            loop.call_later(MERGE_S, self.deliver_turn)
        else:
            loop.call_soon(self.deliver_turn)

    def deliver_turn(self) -> None:
        """Serve the marked topics in turn: one that has more to do goes to the back of the queue."""
        work, until_s = TURN_WORK, perf_counter() + TURN_S
        while self._queue and work > 0 and perf_counter() < until_s:
            fanout = self._queue.popleft()
            fanout.marked = False
            # Its watchers may have left while it waited, and the engine with them.
            if not fanout.subscriptions:
                continue
            priority = self.engine.priority_of(fanout.topic)
            if priority >= 0 or self._load_shedder.level < Level.DEFER:
                fanout.deferred_since = None
            elif self._defers(fanout):
                continue
            try:
                self._protect(priority)
                work -= fanout.serve(min(work, int(TURN_WORK * _share(priority))), until_s)
            except Exception:
                log.exception("serving the watchers of %s failed", fanout.topic.name)
                fanout.give_up_round()
            # A visit that found nothing to do still took a moment.
            work -= 1
            if fanout.unfinished:
                self.mark(fanout)
        self._scheduled = False
        if self._queue:
            self._schedule()

    def _defers(self, fanout: TopicFanout) -> bool:
        """Put off a topic of low priority while the server cannot keep up, but not for ever."""
        loop = asyncio.get_running_loop()
        if fanout.deferred_since is None:
            fanout.deferred_since = loop.time()
        elif loop.time() - fanout.deferred_since >= LONGEST_DEFER_S:
            return False
        fanout.marked = True
        loop.call_later(DEFER_S, self._requeue, fanout)
        return True

    def _requeue(self, fanout: TopicFanout) -> None:
        fanout.marked = False
        self.mark(fanout)


def _share(priority: int) -> float:
    for least, share in SHARES:
        if priority >= least:
            return share
    return LEAST_SHARE

"""What a claim is answered, and a claim that waits for a job until its time is over."""

import asyncio

from topics.flow.queues.claims import Claim
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import JobQueue
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, elapsed_ms
from topics.values import ApiError, topic_not_found


def reply_claim(
    exchange: Exchange, queue: JobQueue, jobs: list[tuple[int, bytes]], notice: Notice | None
) -> None:
    """Jobs, and the losses that this worker is the one to be told of."""
    if notice is not None and exchange.closed:
        queue.losses.withdraw()
        return
    exchange.reply(
        b'{"topic":"%b","count":%d,"ready":%d,"claimed":[%b],"tombstone":%b,'
        b'"performance":{"server_total_ms":%.3f}}'
        % (
            queue.topic.name_json,
            len(jobs),
            queue.counts()[0],
            b"{" + b",{".join([text for _, text in jobs]) if jobs else b"",
            b"null" if notice is None else notice.json(),
            elapsed_ms(exchange),
        )
    )
    if notice is not None:
        queue.told(notice)


class WaitingClaim:
    """A worker at the dispatcher of its queue that leaves with its first jobs."""

    is_reader = False

    def __init__(self, service: Service, exchange: Exchange, queue: JobQueue, claim: Claim) -> None:
        """`claim`: what it asked for, in vain."""
        self._service = service
        self._exchange = exchange
        self.key = exchange.key
        self._queue = queue
        self._wish = claim
        self._timer: asyncio.TimerHandle | None = None
        # On its way to being served, with others that asked at the same time.
        self._claim: Claim | None = None
        self._is_over = False

    def wait(self, wait_ms: int) -> None:
        """As long as that, from when the request came."""
        left_s = max(wait_ms - elapsed_ms(self._exchange), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(left_s, self.release)
        self._service.parked.add(self)
        self._queue.dispatcher.add(self)
        self._exchange.on_close(self._leave)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._service.parked.discard(self)
            self._queue.dispatcher.remove(self)
            if self._claim is not None:
                self._claim.leave()

    # --- as a worker of the dispatcher ------------------------------------------------------------------

    @property
    def room(self) -> int:
        return 0 if self._claim is not None else self._wish.wanted

    @property
    def can_receive(self) -> bool:
        return self._claim is None

    def ask(self) -> Claim:
        wish = self._wish
        self._claim = Claim(wish.node, wish.wanted, wish.lease_ms, self._served, self._refused)
        return self._claim

    def _served(self, claim: Claim) -> None:
        self._claim = None
        if claim.jobs or claim.notice is not None or self._is_over:
            self._answer(claim.jobs, claim.notice)

    def _refused(self, error: ApiError) -> None:
        self._claim = None
        self._leave()
        self._exchange.fail(error)

    def tell(self, notice: Notice) -> None:
        self._answer([], notice)

    def queue_gone(self) -> None:
        self._refused(topic_not_found(self._queue.topic.name))

    def shut_down(self) -> None:
        self.release()

    def release(self) -> None:
        """Its time is over. What is on its way to it is waited for, or jobs would be leased to a worker that
        has gone."""
        if self._claim is not None:
            self._is_over = True
        else:
            self._answer([], None)

    def _answer(self, jobs: list[tuple[int, bytes]], notice: Notice | None) -> None:
        self._leave()
        reply_claim(self._exchange, self._queue, jobs, notice)

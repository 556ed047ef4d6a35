"""Work streams: jobs pushed to a worker as places become free, and taken back when its connection ends."""

from topics.core import MAX_CLAIM, ApiError, invalid
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.leases import Holder
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import JobQueue
from topics.http import sse
from topics.http.admission.auth import READ, WRITE, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import check_node, lease_length
from topics.http.routes.queues import queue_of
from topics.http.routes.service import Service, routes
from topics.http.stream import Stream

HEARTBEAT_S = 15.0


@routes.add(
    "GET",
    "/v0/topics/:topic/work",
    scopes=READ | WRITE,
    event_stream=True,
    token_in_query=True,
    query=("node", "max", "lease_ms"),
)
def open_stream(service: Service, exchange: Exchange) -> None:
    node = exchange.query("node")
    if node is None:
        raise invalid("node is required")
    check_node(node)
    most = min(_number(exchange.query("max")) or 1, MAX_CLAIM)
    lease_ms = _number(exchange.query("lease_ms"))
    queue = queue_of(service, exchange)
    service.admission.read(exchange.name, is_noted=False)
    service.streams.take_place(exchange.key)
    held = exchange.open_stream(sse.CONTENT_TYPE, sse.HEADERS)
    lease_ms = None if lease_ms is None else lease_length(lease_ms)
    WorkStream(service, queue, held, node, most, lease_ms, exchange.key).start()


def _number(text: str | None) -> int | None:
    """A query parameter that is not an unsigned number counts as missing."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


class WorkStream(sse.EventStream):
    """One worker's connection: at most `most` leases at a time, all of which end with it."""

    __slots__ = ("_claim", "_holder", "_lease_ms", "_most", "_node", "_queue")

    is_reader = True

    def __init__(
        self,
        service: Service,
        queue: JobQueue,
        held: Stream,
        node: str,
        most: int,
        lease_ms: int | None,
        key: ApiKey | None,
    ) -> None:
        super().__init__(service.streams, held, key, HEARTBEAT_S)
        self._queue = queue
        self._node = node
        self._most = most
        self._lease_ms = lease_ms
        self._holder = Holder()
        self._claim: Claim | None = None

    def begin(self) -> None:
        self._queue.dispatcher.add(self)

    @property
    def room(self) -> int:
        """Return the number of jobs that it may get now: none while it waits for some, or does not read."""
        if self._claim is not None or self.stalled:
            return 0
        return self._most - len(self._holder.seqs)

    @property
    def can_receive(self) -> bool:
        return not self.stalled

    def ask(self) -> Claim:
        lease_ms = self._lease_ms or self._queue.topic.config.lease_ms
        self._claim = Claim(self._node, self.room, lease_ms, self._deliver, self._refused, self._holder)
        return self._claim

    def _deliver(self, claim: Claim) -> None:
        self._claim = None
        if claim.notice is not None:
            self.tell(claim.notice)
        if claim.jobs:
            opening = b'{"topic":"%b",' % self._queue.topic.name_json
            self.last_sent = self._loop.time()
            frames = [sse.FRAME % (b"%d" % seq, b"job", opening + text) for seq, text in claim.jobs]
            self.write(b"".join(frames))

    def tell(self, notice: Notice) -> None:
        queue = self._queue
        if self._held.closed:
            queue.losses.withdraw()
            return
        self.last_sent = self._loop.time()
        self.write(sse.frame_without_id("tombstone", notice.json()))
        queue.told(notice)

    def _refused(self, error: ApiError) -> None:
        self._claim = None
        if self._queue.is_gone:
            self.queue_gone()
        else:
            self.end_with(code=error.status, error=error.code, message=error.message)

    def on_relief(self) -> None:
        self._queue.dispatcher.wake()

    def give_up(self) -> None:
        """A worker that does not read does not work either: others get its jobs."""
        self.end_slow([self._queue.topic.name])

    def queue_gone(self) -> None:
        message = f'the queue "{self._queue.topic.name}" is gone'
        self.end_with(code=409, error="not_a_queue", message=message)

    def release(self) -> None:
        """Free the jobs that this worker holds, and stop feeding it."""
        super().release()
        dispatcher = self._queue.dispatcher
        if self in dispatcher.workers:
            dispatcher.remove(self)
            if self._claim is not None:
                self._claim.leave()
            self._queue.release(self._holder)

"""All queues of an engine: their leases beside the topics, and what of them is kept across restarts.

Delivery counts are kept with the leases, so only where `leases_durable` asks for it. The number of dead
letters is kept always, because the frame that moves a job says so anyway.
"""

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from topics.core import ApiError
from topics.flow.queues.dispatcher import WaitingWorker
from topics.flow.queues.leases import Entry
from topics.flow.queues.losses import LossState
from topics.flow.queues.queue import JobQueue
from topics.log import CallbackOp, Engine, Extension, Selector, Topic, apply_delete, note_unfound
from topics.storage import Frame, FrameDraft, Kind

_states = msgspec.msgpack.Decoder(list[LossState])


class LossJournal(Extension):
    name = "queue_losses"
    kinds: tuple[int, ...] = (Kind.QUEUE_LOSSES,)

    def __init__(self, engine: Engine, queues: Callable[[], Iterable[JobQueue]]) -> None:
        """`queues` returns all queues."""
        self._engine = engine
        self._queues = queues

    def note(self, queues: Iterable[JobQueue]) -> None:
        """Journal what workers of these queues know. No worker waits for it."""
        payload = msgspec.msgpack.encode([queue.losses.dump() for queue in queues])
        frame = FrameDraft(Kind.QUEUE_LOSSES, payload, ts=self._engine.now())
        # If nothing can be written, the next process tells it again.
        with suppress(ApiError):
            self._engine.queue.submit(CallbackOp([frame], None, _ignore, _ignore, sync=False))

    def start(self) -> None:
        queues = [queue for queue in self._queues() if queue.losses.settle()]
        if queues:
            self.note(queues)

    # --- restart ----------------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        self._load(_states.decode(frame.payload))

    def dump(self) -> Any:
        return [queue.losses.dump() for queue in self._queues() if not queue.losses.is_plain]

    def load(self, state: Any) -> None:
        self._load(msgspec.convert(state, list[LossState]))

    def _load(self, states: list[LossState]) -> None:
        for state in states:
            topic = self._engine.by_id.get(state.topic)
            if topic is not None and topic.config.is_queue:
                topic.extension.losses.load(state)


_entries = msgspec.msgpack.Decoder(list[Entry])
_selector = msgspec.msgpack.Decoder(Selector)
# Lease ids start at a random number this long, so that those of two runs of the server never meet.
_ID_BITS = 62


class Queues(Extension):
    """The extension behind every topic of type queue; `topic.extension` is its `JobQueue`."""

    name = "queues"
    kinds: tuple[int, ...] = (Kind.LEASE, Kind.DEAD_LETTER)

    def __init__(
        self,
        engine: Engine,
        random_bits: Callable[[int], int] = secrets.randbits,
        *,
        pull: Callable[[Topic], None] = lambda _: None,
    ) -> None:
        """`pull` makes the copies that routers owe to a queue."""
        self._engine = engine
        self.pull = pull
        self._last_id = random_bits(_ID_BITS)
        # By topic, whose id a restore may change.
        self._by_topic: dict[Topic, JobQueue] = {}
        self.losses = LossJournal(engine, self.all)
        # Both have to be registered.
        self.extensions: tuple[Extension, ...] = (self, self.losses)

    def topic_shown(self, topic: Topic) -> None:
        if topic.config.is_queue:
            queue = JobQueue(self._engine, topic, self)
            topic.attach(queue)
            self._by_topic[topic] = queue

    def topic_dropped(self, topic: Topic) -> None:
        self._by_topic.pop(topic, None)

    def all(self) -> Iterable[JobQueue]:
        return self._by_topic.values()

    def workers(self) -> list[WaitingWorker]:
        """Return everyone who waits for jobs."""
        return [worker for queue in self.all() for worker in queue.dispatcher.workers]

    def of(self, topic: Topic) -> JobQueue:
        if not topic.config.is_queue:
            raise ApiError("not_a_queue", f'topic "{topic.name}" is not a queue', {"topic": topic.name})
        queue: JobQueue = topic.extension
        return queue

    def next_lease_ids(self, count: int) -> int:
        """Reserve ids and return the first.

        They do not start over with the process: an old token must never fit a new lease.
        """
        first = self._last_id + 1
        self._last_id += count
        return first

    def start(self) -> None:
        """Journal the deadlines of leases that survived the restart: they have moved."""
        for queue in self.all():
            if queue.topic.config.leases_durable and queue.table.known():
                queue.keep_leases(_ignore, _ignore)

    # --- restart ----------------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        topic = self._engine.by_id.get(frame.topic_id)
        if topic is None or not topic.config.is_queue:
            return
        queue = self.of(topic)
        if frame.kind == Kind.LEASE:
            queue.restore(_entries.decode(frame.payload), frame.flags, frame.ts)
        else:
            selector = _selector.decode(frame.payload)
            note_unfound(topic, selector)
            apply_delete(topic, selector, frame.ts)
            queue.dead_letters.count += frame.count

    def dump(self) -> Any:
        state = []
        for queue in self.all():
            entries = queue.entries() if queue.topic.config.leases_durable else []
            if entries or queue.dead_letters.count:
                state.append((queue.topic.id, queue.dead_letters.count, entries))
        return state

    def load(self, state: Any) -> None:
        for topic_id, dead_lettered, entries in state:
            queue = self.of(self._engine.by_id[topic_id])
            queue.dead_letters.count = dead_lettered
            queue.table.restore(entries, self._engine.shown_time.floor_ms)


def _ignore(*_: object) -> None:
    return None

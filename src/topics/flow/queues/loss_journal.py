"""Which lost jobs workers were told of, kept across restarts."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from topics.core import ApiError
from topics.flow.queues.losses import LossState
from topics.flow.queues.queue import JobQueue
from topics.log import CallbackOp, Engine, Extension
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


def _ignore(_: object) -> None:
    return None

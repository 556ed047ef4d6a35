"""What workers have been told of lost jobs, kept across restarts.

Directories of the first edition do not say it. What their queues had lost by the time they are first opened
counts as told, and a frame says so: from then on a queue of which nothing is written down has told nothing.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from topics.flow.queues.losses import LossState
from topics.flow.queues.queue import JobQueue
from topics.log import CallbackOp, Engine, Extension
from topics.storage import Frame, FrameDraft, Kind
from topics.values import ApiError

_states = msgspec.msgpack.Decoder(list[LossState])


class LossJournal(Extension):
    name = "queue_losses"
    kinds: tuple[int, ...] = (Kind.QUEUE_LOSSES,)

    def __init__(self, engine: Engine, queues: Callable[[], Iterable[JobQueue]]) -> None:
        """`queues`: all there are."""
        self._engine = engine
        self._queues = queues
        # This directory keeps account of what was told.
        self._has_begun = False

    def note(self, queues: Iterable[JobQueue]) -> None:
        """Write down what is known of these queues by now. No worker waits for it."""
        payload = msgspec.msgpack.encode([queue.losses.dump() for queue in queues])
        frame = FrameDraft(Kind.QUEUE_LOSSES, payload, ts=self._engine.now())
        # Where nothing can be written, the next process tells it again.
        with suppress(ApiError):
            self._engine.queue.submit(CallbackOp([frame], None, _ignore, _ignore, sync=False))

    def start(self) -> None:
        queues = [queue for queue in self._queues() if queue.losses.settle()]
        if not self._has_begun:
            queues = self._begin()
            self.note(queues)
        elif queues:
            self.note(queues)

    def _begin(self) -> list[JobQueue]:
        queues = [*self._queues()]
        for queue in queues:
            queue.losses.pass_over()
        self._has_begun = True
        return queues

    # --- restart ----------------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        self._load(_states.decode(frame.payload))

    def dump(self) -> Any:
        if not self._has_begun:
            self._begin()
        return [queue.losses.dump() for queue in self._queues() if not queue.losses.is_plain]

    def load(self, state: Any) -> None:
        self._load(msgspec.convert(state, list[LossState]))

    def _load(self, states: list[LossState]) -> None:
        self._has_begun = True
        for state in states:
            topic = self._engine.by_id.get(state.topic)
            if topic is not None and topic.config.is_queue:
                topic.extension.losses.load(state)


def _ignore(_: object) -> None:
    return None

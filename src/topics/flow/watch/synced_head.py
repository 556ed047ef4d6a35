"""For watchers that want nothing a power failure could still take back."""

from __future__ import annotations

from collections.abc import Callable

from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.operation import CallbackOp
from topics.values.errors import ApiError


class SyncedHead:
    """How much of a topic is known to be on disk; asks for a sync when that is not everything."""

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

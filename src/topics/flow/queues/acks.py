"""Acknowledgements: all that come before the journal is written share one deletion, and so one frame."""

from collections.abc import Callable
from dataclasses import dataclass

from topics.log import Engine, Fail, Op, Selector, Topic
from topics.values import ApiError

# As many jobs as one deletion takes; a queue with more workers than that has several at a time.
MOST_JOBS = 10_000


@dataclass(slots=True, eq=False)
class Ack:
    """What one worker has finished. `done` gets the commit, and which of the jobs were lost before it."""

    seqs: list[int]
    done: Callable[[Op, list[int]], None]
    fail: Fail


class Acks:
    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        is_lost: Callable[[int], bool],
        finish: Callable[[list[int], int], None],
    ) -> None:
        """`finish` is told which jobs have left the queue, and how many records were deleted with them."""
        self._engine = engine
        self._topic = topic
        self._is_lost = is_lost
        self._finish = finish
        self._waiting: list[Ack] = []
        self._jobs = 0

    def add(self, ack: Ack) -> None:
        """Raises when there is no room for it."""
        queue = self._engine.queue
        queue.require_room(1)
        if not self._waiting:
            queue.before_flush(self._submit)
        self._waiting.append(ack)
        self._jobs += len(ack.seqs)
        if self._jobs > MOST_JOBS:
            self._submit()

    def _submit(self) -> None:
        acks, self._waiting, self._jobs = self._waiting, [], 0
        if not acks:
            return  # there were so many that they have gone already
        seqs = [seq for ack in acks for seq in ack.seqs]

        def deleted(op: Op, count: int) -> None:
            # A cap or age may have taken some while the deletion was on its way.
            too_late = {seq for seq in seqs if self._is_lost(seq)} if count < len(seqs) else ()
            self._finish(seqs, count)
            for ack in acks:
                ack.done(op, [seq for seq in ack.seqs if seq in too_late] if too_late else [])

        def failed(error: ApiError) -> None:
            for ack in acks:
                ack.fail(error)

        try:
            selector = Selector(self._topic.assigned + 1, seqs=seqs)
            self._engine.submit_delete(self._topic, selector, deleted, failed)
        except ApiError as error:
            failed(error)

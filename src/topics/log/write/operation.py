"""Operations: frames that the journal is to take, and the effect once it has them."""

from collections.abc import Callable
from typing import Protocol

from topics.codec import Write
from topics.core import ApiError
from topics.log.topic import Topic
from topics.storage import FrameDraft

Fail = Callable[[ApiError], None]


class PendingAppend(Protocol):
    """An append request that waits for the end of its turn."""

    body: bytes
    # The records, if they are decoded already.
    write: Write | None

    def fail(self, error: ApiError) -> None:
        """Report that nothing of the request was or will be written."""


class Op:
    """Something to be journalled. `apply` runs once it is committed, `fail` if it never will be."""

    __slots__ = ("frames", "fsync_ms", "others", "sync", "topic", "wal_ms")

    # It makes the log larger: on a full disk it is refused, so that there is room for what makes it smaller.
    grows = False
    # What is not, keeps its place in the order of its topics, and whatever comes there behind it waits.
    is_ready = True

    def __init__(self, frames: list[FrameDraft], topic: Topic | None, *, sync: bool) -> None:
        self.frames = frames
        self.topic = topic
        self.others: tuple[Topic, ...] = ()
        self.sync = sync
        self.wal_ms = 0.0
        self.fsync_ms = 0.0

    @property
    def span(self) -> tuple[int, int]:
        """Where the first of its frames begins in the journal, and where the last one ends."""
        frames = self.frames
        return (frames[0].position, frames[-1].position + frames[-1].size) if frames else (0, 0)

    def apply(self) -> None:
        raise NotImplementedError

    def fail(self, error: ApiError) -> None:
        raise NotImplementedError

    def withdraw(self) -> None:
        """It is refused, and other writes go on: seqs that it was given are given out anew."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """All whose order it belongs to."""
        return self.others if self.topic is None else (self.topic, *self.others)


class CallbackOp(Op):
    """An operation whose effect is a function; whatever gives out no seqs uses it."""

    __slots__ = ("_apply", "_fail")

    def __init__(
        self,
        frames: list[FrameDraft],
        topic: Topic | None,
        apply: Callable[[Op], None],
        fail: Fail,
        *,
        sync: bool,
    ) -> None:
        super().__init__(frames, topic, sync=sync)
        self._apply = apply
        self._fail = fail

    def apply(self) -> None:
        self._apply(self)

    def fail(self, error: ApiError) -> None:
        self._fail(error)


class Creation(CallbackOp):
    """One that makes something new."""

    __slots__ = ()

    grows = True

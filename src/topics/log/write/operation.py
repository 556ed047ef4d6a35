"""Operations: what is to be journalled, and what happens once it is."""

from collections.abc import Callable

from topics.log.topic import Topic
from topics.values import ApiError

Fail = Callable[[ApiError], None]


class Op:
    """Something to be journalled. `apply` runs once it is committed, `fail` if it never will be."""

    __slots__ = ("buffers", "fsync_ms", "others", "sync", "topic", "wal_ms", "writers")

    # It makes the log larger: on a full disk it is refused, so that there is room for what makes it smaller.
    grows = False
    # What is not, keeps its place in the order of its topics, and whatever comes there behind it waits.
    is_ready = True

    def __init__(self, buffers: list[bytes], topic: Topic | None, *, sync: bool) -> None:
        self.buffers = buffers
        self.topic = topic
        self.others: tuple[Topic, ...] = ()
        self.sync = sync
        # How many wait for it.
        self.writers = 1
        self.wal_ms = 0.0
        self.fsync_ms = 0.0

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
        buffers: list[bytes],
        topic: Topic | None,
        apply: Callable[[Op], None],
        fail: Fail,
        *,
        sync: bool,
    ) -> None:
        super().__init__(buffers, topic, sync=sync)
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

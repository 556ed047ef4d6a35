"""Operations: what is to be journalled, and what happens once it is."""

from collections.abc import Callable

from topics.log.topic import Topic
from topics.values import ApiError

Fail = Callable[[ApiError], None]


class Op:
    """Something to be journalled. `apply` runs once it is committed, `fail` if it never will be."""

    __slots__ = ("buffers", "fsync_ms", "others", "sync", "topic", "wal_ms")

    def __init__(self, buffers: list[bytes], topic: Topic | None, *, sync: bool) -> None:
        self.buffers = buffers
        self.topic = topic
        self.others: tuple[Topic, ...] = ()
        self.sync = sync
        self.wal_ms = 0.0
        self.fsync_ms = 0.0

    def apply(self) -> None:
        raise NotImplementedError

    def fail(self, error: ApiError) -> None:
        raise NotImplementedError


class CallbackOp(Op):
    """An operation whose effect is a function; everything but appends uses it."""

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

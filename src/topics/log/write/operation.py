"""Operations: frames that the journal is to take, and the effect once it has them."""

from collections.abc import Callable
from typing import Any, ClassVar

from mypy_extensions import mypyc_attr

from topics.core import ApiError
from topics.log.topic import Topic
from topics.storage import FrameDraft

Fail = Callable[[ApiError], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Op:
    """Something to be journalled. `apply` runs once it is committed, `fail` if it never will be."""

    __slots__ = ("frames", "fsync_ms", "others", "sync", "topic", "wal_ms")

    # A topic, or None; a subclass knows which.
    topic: Any

    # It makes the log larger: on a full disk it is refused, so that there is room for what makes it smaller.
    grows: ClassVar[bool] = False
    # `prepare` makes its frames.
    is_late: ClassVar[bool] = False

    def __init__(self, frames: list[FrameDraft], topic: Topic | None, *, sync: bool) -> None:
        self.frames = frames
        self.topic = topic
        self.others: tuple[Topic, ...] = ()
        self.sync = sync
        self.wal_ms = 0.0
        self.fsync_ms = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether it can be written. If not, it keeps its place, and later operations of its topics wait."""
        return True

    @property
    def span(self) -> tuple[int, int]:
        """Where the first of its frames begins in the journal, and where the last one ends."""
        frames = self.frames
        return (frames[0].position, frames[-1].position + frames[-1].size) if frames else (0, 0)

    def prepare(self) -> None:
        """Make frames that have to wait until the journal takes them."""

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

    grows: ClassVar[bool] = True

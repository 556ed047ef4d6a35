"""The position of a consumer, stored so that it survives a restart.

    Cursor                 your own: give it load() and store(position)
    ├── MemoryCursor       ends with the process
    ├── FileCursor         a file of its own
    ├── SqliteCursor       a row in your database, stored together with your effect
    └── ServerCursor       at the server, beside the topic

A position moves when a record is done: when the next one is asked for, or by `commit`. A loss does not move
it: its reader has to `accept` it.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

from topics.client.records import Accepted, AnyLoss, Lost, Position, Record, Restarted
from topics.client.wire.effects import Attach, Call, Operation
from topics.client.wire.session import Session

if TYPE_CHECKING:
    from topics.client.errors import Loss

Start = Literal["first", "earliest", "head"]


class Cursor:
    """Subclass it to keep positions elsewhere: `load()` gives the last one, `store(position)` keeps one.

    `start` says where a consumer begins that has no position yet: at the first record ever written ("first":
    all that was lost since then is owed, and announced), at the earliest one still there, or at the head.
    With `every` above 1, each Nth record is stored only: more speed, more repeats after a crash.
    """

    # Whether storing is fast and local, so that `commit` may store at once on asyncio, too.
    is_local = False
    # Class attributes, so that a subclass need not call super().__init__().
    start: Start = "first"
    every = 1
    _topic: str | None = None
    _position: Position | None = None
    _stored: Position | None = None
    _waiting = 0
    _is_loaded = False
    _accepted: tuple[Accepted, ...] = ()
    # Runs operations for a cursor that a blocking reader has used.
    _run: Callable[[Operation[Any]], Any] | None = None
    _session: Session | None = None
    # Threads may commit what one of them has read. One lock for all cursors, held for a comparison only.
    _moving = threading.Lock()
    # Held while a position is stored, so that an older one is not stored last.
    _storing: threading.RLock

    def __new__(cls, *_: Any, **__: Any) -> Self:
        cursor = super().__new__(cls)
        cursor._storing = threading.RLock()
        return cursor

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_storing"}

    def __init__(self, *, start: Start = "first", every: int = 1) -> None:
        if start not in ("first", "earliest", "head"):
            raise ValueError(f'start is "first", "earliest" or "head", not {start!r}')
        if every < 1:
            raise ValueError("every is 1 or more")
        self.start = start
        self.every = every

    # --- for your own -----------------------------------------------------------------------------------

    def load(self) -> Position | None:
        """Return the last stored position, or None."""
        raise NotImplementedError(f"{type(self).__name__} needs load()")

    def store(self, position: Position) -> Any:
        """Store a position, replacing the one before."""
        raise NotImplementedError(f"{type(self).__name__} needs store(position)")

    # --- for users --------------------------------------------------------------------------------------

    @property
    def position(self) -> Position | None:
        """The position of the consumer; None before the first use."""
        return self._position

    @property
    def accepted(self) -> list[Accepted]:
        """The losses that this consumer has passed, and why."""
        return list(self._accepted)

    def commit(self, record: Record[Any]) -> None:
        """Mark this record, and all before it, as done."""
        self._check_topic(record.topic)
        self._move(Position(record.topic, record.epoch, record.seq))
        self._note_now()

    def accept(self, loss: "AnyLoss | Loss[Any]", *, why: str) -> None:
        """Continue after a loss, now and after a restart of the consumer."""
        found: Any = getattr(loss, "loss", loss)
        if not isinstance(found, Lost | Restarted):
            raise TypeError("accept takes a Lost, a Restarted, or the exception that brought one")
        if not why.strip():
            raise ValueError("say why this loss is accepted")
        self._check_topic(found.topic)
        self._check_adjacent(found)
        accepted = Accepted(found, why)
        self._topic = found.topic
        with self._storing:
            self._move(position_after(found))
            self._accepted += (accepted,)
            self._keep_accepted(accepted)

    # --- for readers ------------------------------------------------------------------------------------

    def _begin(self, topic: str, session: Session) -> Operation[None]:
        """Called by a reader of this topic: load the position."""
        self._check_topic(topic)
        self._session = session
        self._run = yield Attach(self)
        if not self._is_loaded and self.position is None:
            position: Any = yield from self._fetch(topic)
            if position is not None and not isinstance(position, Position):
                raise ValueError(f"{type(self).__name__}.load() gave {position!r}, which is no Position")
            self._position = self._stored = position
            self._check_topic(topic)
        self._is_loaded = True
        self._topic = topic
        yield from self._flush()  # what was accepted while no reader could store it

    def _fetch(self, topic: str) -> Operation[Any]:
        """Load the last stored position."""
        return (yield Call(self.load))  # on asyncio, it may be a coroutine function

    def _keep(self, position: Position) -> Operation[None]:
        yield Call(self.store, (position,))

    def _flush(self) -> Operation[None]:
        """Store the position if it is not stored yet."""
        if self.is_local or self._run is not None:
            with self._storing:
                yield from self._store_newest()
        else:  # on asyncio, where its reader alone stores
            yield from self._store_newest()

    def _store_newest(self) -> Operation[None]:
        position = self.position
        if position is not None and position != self._stored:
            yield from self._keep(position)
            self._stored = position
        self._waiting = 0

    def _hand_out(self, record: Record[Any] | None) -> None:
        """The reader hands out this record; None at its end."""

    def _advance(self, position: Position) -> bool:
        """Move the position. Returns whether it is time to store it."""
        self._move(position)
        self._waiting += 1
        return self._waiting >= self.every

    def _move(self, position: Position) -> None:
        """Move the position forward, never back."""
        with self._moving:
            at = self._position
            if at is None or (position.epoch, position.seq) > (at.epoch, at.seq):
                self._position = position

    def _note_now(self) -> None:
        if self.is_local:
            drive(self._flush())
        elif self._run is not None:
            self._run(self._flush())
        else:
            # On asyncio, the reader stores it before the next record, whatever `every` is.
            self._waiting = self.every

    def _keep_accepted(self, accepted: Accepted) -> None:
        """Store the position, and the accepted loss if this kind of cursor can."""
        self._note_now()

    def _check_topic(self, topic: str) -> None:
        at = self.position
        known = self._topic if at is None else at.topic
        if known is not None and known != topic:
            raise ValueError(f"this cursor is of topic {known}, not of {topic}")

    def _check_adjacent(self, loss: AnyLoss) -> None:
        """Refuse to accept a loss that is ahead of records that were not read."""
        at = self.position
        if at is None or not isinstance(loss, Lost) or at.epoch != loss.epoch:
            return
        if loss.gap_from > at.seq + 1:
            raise ValueError(
                f"this cursor stands behind seq {at.seq}: it has not come to the loss from {loss.gap_from}"
            )


class MemoryCursor(Cursor):
    """A position in memory, which ends with the process."""

    is_local = True
    # The last record that is done. A position is made of it only when it is asked for.
    done: Record[Any] | None = None

    def load(self) -> Position | None:
        return None

    def store(self, position: Position) -> None:
        pass

    @property
    def position(self) -> Position | None:
        if self.done is not None:
            self._move(Position(self.done.topic, self.done.epoch, self.done.seq))
        return self._position

    def _move(self, position: Position) -> None:
        done, self.done = self.done, None
        if done is not None:
            super()._move(Position(done.topic, done.epoch, done.seq))
        super()._move(position)


def position_after(loss: AnyLoss) -> Position:
    """The position at which a reader continues after a loss."""
    if isinstance(loss, Lost):
        return Position(loss.topic, loss.epoch, loss.gap_to)
    return Position(loss.topic, loss.epoch, loss.first_seq - 1)


def drive(operation: Operation[Any]) -> Any:
    """Run an operation that only calls local functions."""
    value: Any = None
    while True:
        try:
            effect = operation.send(value)
        except StopIteration as end:
            return end.value
        if not isinstance(effect, Call):
            raise RuntimeError("a cursor at the server is stored by its reader")
        value = effect.function(*effect.arguments)

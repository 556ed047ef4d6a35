"""The position of a consumer, stored so that it survives a restart.

    Cursor                 your own: give it load() and store(position)
    ├── MemoryCursor       ends with the process
    ├── FileCursor         a file of its own
    ├── SqliteCursor       a row in your database, stored together with your effect
    └── ServerCursor       at the server, beside the topic

A position moves when a record is done: when the next one is asked for, or by `commit`. A loss does not move
it: its reader has to `accept` it.
"""

import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from topics.client.errors import Refused
from topics.client.operations import managing
from topics.client.records import Accepted, AnyLoss, Lost, Position, Record, Restarted
from topics.client.wire.requests import Operation
from topics.client.wire.session import Session, topic_path

if TYPE_CHECKING:
    import sqlite3

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

    async def _begin(self, topic: str, session: Session) -> None:
        """Called by a reader of this topic: load the position."""
        self._check_topic(topic)
        self._session = session
        self._run = session.io.attach(self)
        if not self._is_loaded and self.position is None:
            position: Any = await self._fetch(session, topic)
            if position is not None and not isinstance(position, Position):
                raise ValueError(f"{type(self).__name__}.load() gave {position!r}, which is no Position")
            self._position = self._stored = position
            self._check_topic(topic)
        self._is_loaded = True
        self._topic = topic
        await self._flush()  # what was accepted while no reader could store it

    async def _fetch(self, session: Session, topic: str) -> Any:
        """Load the last stored position."""
        return await session.io.call(self.load)  # on asyncio, it may be a coroutine function

    async def _keep(self, position: Position) -> None:
        if self.is_local:
            self.store(position)
        elif self._session is not None:
            await self._session.io.call(self.store, position)

    async def _flush(self) -> None:
        """Store the position if it is not stored yet."""
        if self.is_local or self._run is not None:
            with self._storing:
                await self._store_newest()
        else:  # on asyncio, where its reader alone stores
            await self._store_newest()

    async def _store_newest(self) -> None:
        position = self.position
        if position is not None and position != self._stored:
            await self._keep(position)
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
            with suppress(StopIteration):
                self._flush().send(None)  # a local cursor stores without waiting
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


# The size of the slot for the position at the beginning of the file, which is overwritten each time. It has
# room for the longest position: the name of a topic has up to 255 bytes.
_SLOT = 512


_decode_position = msgspec.json.Decoder(Position).decode
_decode_accepted = msgspec.json.Decoder(Accepted).decode


def _to_slot(position: Position) -> bytes:
    text = msgspec.json.encode(position)
    return (b"%08x " % zlib.crc32(text) + text).ljust(_SLOT - 1) + b"\n"


def _from_slot(slot: bytes) -> Position:
    checksum, _, text = slot.rstrip().partition(b" ")
    if len(slot) < _SLOT or int(checksum, 16) != zlib.crc32(text):
        raise ValueError("the checksum does not fit")
    return _decode_position(text)


class FileCursor(Cursor):
    """A file with the position, followed by the accepted losses.

    The file is created with its first position, by a rename. Each later position is one small write over the
    one before. An accepted loss replaces the whole file.
    """

    is_local = True

    def __init__(self, path: str | os.PathLike[str], *, start: Start = "first", every: int = 1) -> None:
        super().__init__(start=start, every=every)
        self.path = Path(path)
        self._file: int | None = None
        # Threads may commit what one of them has read: none must write to a file that another has closed.
        self._using_file = threading.Lock()
        if self.path.exists():
            self._position = self._stored = self.load()
            self._is_loaded = True

    def load(self) -> Position | None:
        if not self.path.exists():
            return None
        content = self.path.read_bytes()
        try:
            position = _from_slot(content[:_SLOT])
            self._accepted = tuple(_decode_accepted(line) for line in content[_SLOT:].splitlines())
        except ValueError as error:
            raise ValueError(f"{self.path} is damaged, or is no cursor: {error}") from None
        return position

    def store(self, position: Position) -> None:
        with self._using_file:
            if self._file is None:
                if not self.path.exists():
                    self._write_whole(position)
                self._file = os.open(self.path, os.O_RDWR)
            os.pwrite(self._file, _to_slot(position), 0)

    def _keep_accepted(self, accepted: Accepted) -> None:
        assert self._position is not None
        with self._using_file:
            self._write_whole(self._position)
        self._stored = self._position
        self._waiting = 0

    def _write_whole(self, position: Position) -> None:
        """Replace the file atomically, with the position and the losses."""
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        with beside.open("wb") as file:
            file.write(_to_slot(position))
            file.writelines(msgspec.json.encode(accepted) + b"\n" for accepted in self._accepted)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        self._let_go()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._let_go()


_TABLES = """
CREATE TABLE IF NOT EXISTS topics_cursors (
    consumer TEXT PRIMARY KEY, topic TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics_accepted_losses (consumer TEXT NOT NULL, loss TEXT NOT NULL);
"""
_PUT = (
    "INSERT INTO topics_cursors VALUES (?, ?, ?, ?) ON CONFLICT (consumer)"
    " DO UPDATE SET topic = excluded.topic, epoch = excluded.epoch, seq = excluded.seq"
)


# A shorter file is not a database, except an empty one. SQLite would overwrite it with a new one.
_SQLITE_HEAD = 100


def _size(path: str | os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


class SqliteCursor(Cursor):
    """A row in an SQLite database. `transaction()` stores your effect and the position together."""

    is_local = True

    def __init__(
        self, path: str | os.PathLike[str], consumer: str, *, start: Start = "first", every: int = 1
    ) -> None:
        super().__init__(start=start, every=every)
        self.consumer = consumer
        self._under_way: Position | None = None
        if os.fspath(path) != ":memory:" and 0 < _size(path) < _SQLITE_HEAD:
            raise ValueError(f"{os.fspath(path)} is damaged, or is no SQLite database")
        import sqlite3  # takes as long to import as the rest of the SDK

        try:
            # The user's statements use this connection, too: none must begin a transaction by itself.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.executescript(_TABLES)
            self._position = self._stored = self.load()
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise ValueError(f"{os.fspath(path)} is damaged, or is no SQLite database: {error}") from None
        self._is_loaded = True

    def load(self) -> Position | None:
        losses = self._db.execute(
            "SELECT loss FROM topics_accepted_losses WHERE consumer = ?", (self.consumer,)
        )
        self._accepted = tuple(_decode_accepted(loss) for (loss,) in losses)
        found = self._db.execute(
            "SELECT topic, epoch, seq FROM topics_cursors WHERE consumer = ?", (self.consumer,)
        ).fetchone()
        return None if found is None else Position(*found)

    def store(self, position: Position) -> None:
        self._db.execute(_PUT, (self.consumer, position.topic, position.epoch, position.seq))

    def _keep_accepted(self, accepted: Accepted) -> None:
        assert self._position is not None
        with self._at_once():
            line = msgspec.json.encode(accepted).decode()
            self._db.execute("INSERT INTO topics_accepted_losses VALUES (?, ?)", (self.consumer, line))
            self.store(self._position)
        self._stored = self._position

    def _hand_out(self, record: Record[Any] | None) -> None:
        self._under_way = None if record is None else Position(record.topic, record.epoch, record.seq)

    @contextmanager
    def transaction(self) -> Iterator["sqlite3.Connection"]:
        """Commit your effect and the position of the current record together, or neither after an error."""
        position = self._under_way
        if position is None:
            raise ValueError("no record is under way: use transaction() inside the loop that reads")
        with self._at_once():
            yield self._db
            self.store(position)
        self._position = self._stored = position
        self._waiting = 0

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()


class ServerCursor(Cursor):
    """A position at the server under the name of the consumer, where others see its lag."""

    def __init__(self, consumer: str, *, start: Start = "first", every: int = 1) -> None:
        super().__init__(start=start, every=every)
        self.consumer = consumer

    async def _fetch(self, session: Session, topic: str) -> Any:
        try:
            found = await session.ask("GET", topic_path(topic, "cursors", self.consumer))
        except Refused as refusal:
            if refusal.code != "not_found":
                raise
            return None
        return Position(topic, found["epoch"], found["seq"])

    async def _keep(self, position: Position) -> None:
        assert self._session is not None
        await managing.put_cursor(self._session, position.topic, self.consumer, position.seq, position.epoch)

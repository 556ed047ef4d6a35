"""Cursors that outlive the process: in a file, in your SQLite database, at the server."""

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from topics.client.cursors.cursor import Cursor, Start
from topics.client.errors import Refused
from topics.client.records import Accepted, AnyLoss, Lost, Position, Record, Restarted
from topics.client.wire.address import path as url_path
from topics.client.wire.effects import Operation

if TYPE_CHECKING:
    import sqlite3

# The size of the slot for the position at the beginning of the file, which is overwritten each time. It has
# room for the longest position: the name of a topic has up to 255 bytes.
_SLOT = 512


class _AcceptedLine(msgspec.Struct, frozen=True, tag_field="accepted"):
    why: str
    topic: str
    epoch: int


class _LostLine(_AcceptedLine, frozen=True, tag="lost"):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int


class _RestartedLine(_AcceptedLine, frozen=True, tag="restarted"):
    previous_epoch: int | None
    first_seq: int


_decode_position = msgspec.json.Decoder(Position).decode
_decode_line = msgspec.json.Decoder(_LostLine | _RestartedLine).decode


def _to_line(accepted: Accepted) -> bytes:
    loss, why = accepted.loss, accepted.why
    if isinstance(loss, Lost):
        line: _AcceptedLine = _LostLine(
            why, loss.topic, loss.epoch, loss.gap_from, loss.gap_to, loss.reason, loss.missed_estimate
        )
    else:
        line = _RestartedLine(why, loss.topic, loss.epoch, loss.previous_epoch, loss.first_seq)
    return msgspec.json.encode(line)


def _from_line(text: bytes | str) -> Accepted:
    line = _decode_line(text)
    loss: AnyLoss
    if isinstance(line, _LostLine):
        loss = Lost(line.topic, line.epoch, line.gap_from, line.gap_to, line.reason, line.missed_estimate)
    else:
        loss = Restarted(line.topic, line.epoch, line.previous_epoch, line.first_seq)
    return Accepted(loss, line.why)


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
            self._accepted = tuple(_from_line(line) for line in content[_SLOT:].splitlines())
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
            file.writelines(_to_line(accepted) + b"\n" for accepted in self._accepted)
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
        self._accepted = tuple(_from_line(loss) for (loss,) in losses)
        found = self._db.execute(
            "SELECT topic, epoch, seq FROM topics_cursors WHERE consumer = ?", (self.consumer,)
        ).fetchone()
        return None if found is None else Position(*found)

    def store(self, position: Position) -> None:
        self._db.execute(_PUT, (self.consumer, position.topic, position.epoch, position.seq))

    def _keep_accepted(self, accepted: Accepted) -> None:
        assert self._position is not None
        with self._at_once():
            line = _to_line(accepted).decode()
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

    def _target(self, topic: str) -> str:
        return url_path("topics", topic, "cursors", self.consumer)

    def _fetch(self, topic: str) -> Operation[Any]:
        assert self._session is not None
        try:
            found = yield from self._session.ask("GET", self._target(topic))
        except Refused as refusal:
            if refusal.code != "not_found":
                raise
            return None
        return Position(topic, found["epoch"], found["seq"])

    def _keep(self, position: Position) -> Operation[None]:
        assert self._session is not None
        stored = {"seq": position.seq, "epoch": position.epoch}
        yield from self._session.ask("PUT", self._target(position.topic), stored)

"""A consumer that is killed at one line after the other, started again, and judged by what it has done.

    python -m tests.sdk.killed_consumer URL TOPIC FOLDER CURSOR SURFACE FIRST STEP

The topic has lost its first records. Each consumer notes in a file what it does: that it took note of the
loss, and the seqs of records. It runs in a fork that kills itself with SIGKILL when so many lines of the SDK
and of the consumer have been executed; then it runs again to the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from topics import (
    AsyncTopics,
    Cursor,
    FileCursor,
    Position,
    RecordsLost,
    ServerCursor,
    SqliteCursor,
    Topics,
)
from topics.client.wire.requests import path

LOST = "lost"


class OwnCursor(Cursor):
    """As the documents show one: the new position takes the place of the old one at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load(self) -> Position | None:
        if not self._path.exists():
            return None
        topic, epoch, seq = self._path.read_text().split()
        return Position(topic, int(epoch), int(seq))

    def store(self, position: Position) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(f"{position.topic} {position.epoch} {position.seq}")
        beside.replace(self._path)


def cursor_of(kind: str, folder: Path, attempt: int) -> Cursor:
    if kind == "file":
        return FileCursor(folder / f"{attempt}.cursor")
    if kind == "sqlite":
        return SqliteCursor(folder / f"{attempt}.db", "billing")
    if kind == "server":
        return ServerCursor(f"{folder.name}-{attempt}")
    return OwnCursor(folder / f"{attempt}.own")


class Consumer:
    def __init__(self, url: str, topic: str, folder: Path, kind: str, attempt: int) -> None:
        self._url = url
        self._topic = topic
        self._notes = folder / f"{attempt}.notes"
        self._cursor = cursor_of(kind, folder, attempt)
        if isinstance(self._cursor, SqliteCursor):
            self._cursor._db.execute("CREATE TABLE IF NOT EXISTS effects (note TEXT)")

    def note(self, what: object) -> None:
        with self._notes.open("a") as file:
            file.write(f"{what}\n")

    def handle(self, record: Any) -> None:
        if isinstance(self._cursor, SqliteCursor):
            with self._cursor.transaction() as db:
                db.execute("INSERT INTO effects VALUES (?)", (str(record.seq),))
        else:
            self.note(record.seq)

    def accept(self, loss: RecordsLost) -> None:
        self.note(LOST)
        self._cursor.accept(loss, why="there is nothing to be done")

    def run(self) -> None:
        with Topics(self._url) as server:
            topic = server.topic(self._topic)
            while True:
                try:
                    for record in topic.read(self._cursor):
                        self.handle(record)
                    return
                except RecordsLost as loss:
                    self.accept(loss)

    async def run_on_asyncio(self) -> None:
        async with AsyncTopics(self._url) as server:
            topic = server.topic(self._topic)
            while True:
                try:
                    async for record in topic.read(self._cursor):
                        self.handle(record)
                    return
                except RecordsLost as loss:
                    self.accept(loss)

    # --- judging ----------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        noted = self._notes.read_text().split() if self._notes.exists() else []
        if isinstance(self._cursor, SqliteCursor):
            noted += [note for (note,) in self._cursor._db.execute("SELECT note FROM effects ORDER BY rowid")]
        return noted

    def forget(self) -> None:
        """The server keeps so many cursors of a topic, and these are more."""
        assert isinstance(self._cursor, ServerCursor)
        with Topics(self._url) as server:
            target = path("topics", self._topic, "cursors", self._cursor.consumer)
            server._io.run(server._session.ask("DELETE", target))


def judge(kind: str, before: list[str], after: list[str], records: list[str]) -> None:
    """`before` was done when it was killed, `after` when it had run again to the end."""
    again = after[len(before) :] if kind != "sqlite" else after
    if kind == "sqlite":
        # Effect and position at once: every record exactly once.
        assert [note for note in after if note != LOST] == records, after
        assert 1 <= after.count(LOST) <= 2, after
        return
    assert after[: len(before)] == before
    done = [note for note in before if note != LOST]
    repeated = [note for note in again if note != LOST]
    # Only what was under way comes again, and nothing is left out.
    assert done == records[: len(done)], after
    assert repeated in (records[len(done) :], records[max(len(done) - 1, 0) :]), after
    # The loss was told before anything behind it, and again only if it was not accepted yet.
    assert after[0] == LOST, after
    assert LOST not in again if done else after.count(LOST) <= 2, after


def in_a_fork(action: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killing(line: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that ends the process at this line of the SDK or of the consumer."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "/topics/client/" not in frame.f_code.co_filename and frame.f_code.co_filename != __file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def main(url: str, topic: str, folder: Path, kind: str, surface: str, first: int, step: int) -> int:
    """How many were killed."""
    with Topics(url) as server:
        records = [
            str(record.seq) for record in server.topic(topic).read(ignore_loss="looked at from outside")
        ]
    line, kills = first, 0
    while True:

        def live(trace: Any = None, attempt: int = line) -> None:
            consumer = Consumer(url, topic, folder, kind, attempt)
            sys.settrace(trace)
            if surface == "asyncio":
                asyncio.run(consumer.run_on_asyncio())
            else:
                consumer.run()

        outcome = in_a_fork(partial(live, killing(line)))
        if outcome == 0:
            return kills
        assert outcome == -signal.SIGKILL, outcome
        kills += 1
        before = Consumer(url, topic, folder, kind, line).notes()
        assert in_a_fork(live) == 0
        consumer = Consumer(url, topic, folder, kind, line)
        judge(kind, before, consumer.notes(), records)
        if kind in ("file", "sqlite"):
            assert len(consumer._cursor.accepted) == 1, consumer._cursor.accepted
        if kind == "server":
            consumer.forget()
        line += step


if __name__ == "__main__":
    where, name, directory, which, how, begin, by = sys.argv[1:]
    print(main(where, name, Path(directory), which, how, int(begin), int(by)))

"""Threads that commit: what is done stays done, in memory and where it is stored."""

from __future__ import annotations

import pickle
import threading
from typing import Any

from topics import Cursor, Position, Record

# How long somebody waits for what must not happen.
LONG_ENOUGH_S = 0.2


def record(seq: int) -> Record[Any]:
    return Record("t", 1, seq, 0, None)


def both(first: Any, is_there: threading.Event, second: Any) -> None:
    """The second as soon as the first is in the middle of what it does."""
    threads = [threading.Thread(target=each) for each in (first, second)]
    threads[0].start()
    assert is_there.wait(30)
    threads[1].start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


class Stored(Cursor):
    """No super().__init__(), as a user's own may have none."""

    is_local = True

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.is_storing, self.has_stored = threading.Event(), threading.Event()

    def load(self) -> Position | None:
        return None

    def store(self, position: Position) -> None:
        if position.seq == 5:
            self.is_storing.set()
            self.has_stored.wait(LONG_ENOUGH_S)
        self.stored.append(position.seq)
        self.has_stored.set()


def test_an_older_position_is_not_stored_last() -> None:
    cursor = Stored()
    both(lambda: cursor.commit(record(5)), cursor.is_storing, lambda: cursor.commit(record(6)))
    assert cursor.stored == [5, 6]


class Slow(int):
    """Takes its time to be compared: for as long as it takes another thread to move the cursor."""

    compared, moved = threading.Event(), threading.Event()

    def __gt__(self, other: int) -> bool:
        self.compared.set()
        self.moved.wait(LONG_ENOUGH_S)
        return super().__gt__(other)


def test_a_cursor_does_not_move_back() -> None:
    cursor = Stored()
    cursor.commit(record(4))

    def move() -> None:
        cursor.commit(record(7))
        Slow.moved.set()

    both(lambda: cursor.commit(record(Slow(6))), Slow.compared, move)
    assert cursor.position == Position("t", 1, 7)


class Own(Cursor):
    """Somebody's own, that can be sent to another process."""

    def load(self) -> Position | None:
        return None


def test_a_cursor_can_be_copied() -> None:
    copy = pickle.loads(pickle.dumps(Own(start="head")))
    copy.commit(record(1))
    assert (copy.start, copy.position) == ("head", Position("t", 1, 1))

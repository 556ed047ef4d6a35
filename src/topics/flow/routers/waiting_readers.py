"""Readers of a destination that wait for the copies of all records that its source held when they came.

Usually a reader makes the missing copies itself. A backlog would keep all other clients waiting, or take too
much memory: the background pass makes those copies.
"""

from collections.abc import Callable
from typing import NamedTuple

from topics.flow.routers.definitions import Router


class _WaitingReader(NamedTuple):
    # The seq that each router has to reach.
    owed: list[tuple[Router, int]]
    go_on: Callable[[], None]


class WaitingReaders:
    def __init__(self, can_move: Callable[[Router], bool]) -> None:
        """No reader waits for a router for which `can_move` is false: it may be stuck for ever."""
        self._can_move = can_move
        self._waiting: list[_WaitingReader] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, behind: list[Router], go_on: Callable[[], None]) -> bool:
        """Call `go_on` when these routers have made the copies they owe now; False if no wait is needed."""
        waiting = _WaitingReader([(router, router.source.head) for router in behind], go_on)
        if self._is_over(waiting):
            return False
        self._waiting.append(waiting)
        return True

    def release_served(self) -> None:
        """Release readers that have nothing left to wait for."""
        over: list[_WaitingReader] = []
        still: list[_WaitingReader] = []
        for one in self._waiting:
            (over if self._is_over(one) else still).append(one)
        self._waiting = still
        for one in over:
            one.go_on()

    def release_all(self) -> None:
        """Release every reader: no more copies are made."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.go_on()

    def _is_over(self, waiting: _WaitingReader) -> bool:
        return not any(router.cursor < upto and self._can_move(router) for router, upto in waiting.owed)

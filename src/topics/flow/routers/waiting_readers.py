"""Readers of a destination who wait for copies: of all that its source held when they came.

Most of the time a reader makes the missing copies itself, in passing. Where these are many, that would keep
everybody else waiting, or take more memory than there is: then the background makes them, as fast as it may.
"""

from collections.abc import Callable
from typing import NamedTuple

from topics.flow.routers.definitions import Router


class _Waiting(NamedTuple):
    # How far each router is to come.
    owed: list[tuple[Router, int]]
    go_on: Callable[[], None]


class WaitingReaders:
    def __init__(self, can_move: Callable[[Router], bool]) -> None:
        """Nobody waits for a router that cannot move: it may be stuck for ever."""
        self._can_move = can_move
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, behind: list[Router], go_on: Callable[[], None]) -> bool:
        """`go_on` is called when these routers have done what they owe now. False if that is not to be."""
        waiting = _Waiting([(router, router.source.head) for router in behind], go_on)
        if self._is_over(waiting):
            return False
        self._waiting.append(waiting)
        return True

    def let_go(self) -> None:
        """Those for whom there is nothing left to wait for."""
        over: list[_Waiting] = []
        still: list[_Waiting] = []
        for one in self._waiting:
            (over if self._is_over(one) else still).append(one)
        self._waiting = still
        for one in over:
            one.go_on()

    def let_all_go(self) -> None:
        """Whatever they find: nobody makes the copies they wait for."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.go_on()

    def _is_over(self, waiting: _Waiting) -> bool:
        return not any(router.cursor < upto and self._can_move(router) for router, upto in waiting.owed)

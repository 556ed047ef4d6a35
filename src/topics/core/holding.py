"""How long requests and upkeep keep the event loop to themselves: as long as one does, all others wait."""

from collections.abc import Coroutine, Generator
from time import perf_counter
from typing import Any

# No request should hold the loop for longer; see docs/monitoring.md.
STALL_S = 0.05


class Holds:
    """Those of one route, or of work in the background."""

    __slots__ = ("longest_s",)

    def __init__(self) -> None:
        self.longest_s = 0.0

    def note(self, held_s: float) -> None:
        if held_s > self.longest_s:
            self.longest_s = held_s


class TimedSteps(Coroutine[Any, Any, None]):
    """A coroutine, each step of which is timed: between two of them others have their turn."""

    __slots__ = ("_holds", "_inner")

    def __init__(self, inner: Coroutine[Any, Any, None], holds: Holds) -> None:
        self._inner = inner
        self._holds = holds

    def send(self, value: Any) -> Any:
        began = perf_counter()
        try:
            return self._inner.send(value)
        finally:
            self._holds.note(perf_counter() - began)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._inner.__await__()

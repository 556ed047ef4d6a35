"""Wait for an event in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def eventually(
    condition: Callable[[], Found],
    within_s: float = 10.0,
    what: str | Callable[[], object] = "it never became true",
    *,
    every_s: float = 0.005,
) -> Found:
    """Call `condition` until its result is true, and return it. Fail with `what` when time runs out."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(every_s)
    return found

"""Keeps the garbage collector from walking again and again what stays: topics, runs, subscriptions.

Nobody is answered while it walks, and those of a hundred thousand topics take it half a second, as do the
subscriptions of a thousand streams. So when a walk through everything took long, whatever it has left is set
aside; the next one looks at what has come since. What is set aside is freed all the same when nothing refers
to it any more. Only circles would not be: so what clients open and close leaves none behind.
"""

import gc
from time import thread_time
from typing import Any

# By processor time. As much again may have come by the next walk, and more at once.
LONG_WALK_S = 0.008
_EVERYTHING = 2


class SettledObjects:
    def __init__(self) -> None:
        self._began_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        """Called before and after each walk, on whichever thread it happens."""
        if info["generation"] != _EVERYTHING:
            return
        if phase == "start":
            self._began_s = thread_time()
        elif thread_time() - self._began_s >= LONG_WALK_S:
            gc.freeze()

"""Ctrl-C between two steps: what a verb says it has done is what it has done."""

import signal
import threading
from typing import Any, Self


class Interruption:
    """Ctrl-C, which does not come between `begin` and `end`. A second one does: that may take its time."""

    def __init__(self) -> None:
        self._before: Any = None
        self._is_busy = False
        self._is_due = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _come(self, _number: int, _frame: object) -> None:
        if self._is_busy and not self._is_due:
            self._is_due = True
        else:
            raise KeyboardInterrupt

    def begin(self) -> None:
        self._is_busy = True

    def end(self) -> None:
        self._is_busy = False
        if self._is_due:
            raise KeyboardInterrupt

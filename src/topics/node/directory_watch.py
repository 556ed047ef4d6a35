"""Looks every second whether the log still lies where its path says.

A directory that is moved away, removed or replaced takes its open files along: writes would succeed, and be
acknowledged, and no later start would find them. So they end.
"""

import asyncio
import logging

from topics.log import Engine
from topics.storage import Home
from topics.values import WritesOff

log = logging.getLogger("topics")

# Nothing is acknowledged five seconds after the directory went; this leaves time for a loop that is busy.
LOOK_S = 1.0


class DirectoryWatch:
    def __init__(self, home: Home, engine: Engine) -> None:
        self._home = home
        self._engine = engine
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        if self.look():
            self.start()

    def look(self) -> bool:
        """On the loop. What is wrong stays wrong until a restart: what became of the files is not known."""
        if self._home.keep() and self._engine.journal.is_in_place():
            return True
        why = f"the data directory {self._engine.dirs.root} was replaced or moved away"
        log.error("%s: nothing is written any more until a restart", why)
        self._engine.end_writes(WritesOff.DIRECTORY_REPLACED, why)
        return False

"""How pipelines fare, told to the server: its console and `topics status` then name those that have failed.

Nothing depends on it. A thread of its own tells it, so that a server that does not answer holds nobody up,
and what it could not tell it tells again a little later.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark_topics.options import Server
from pyspark_topics.pipelines.progress import Figures
from topics.client import Client, Refused, Unreachable

log = logging.getLogger(__name__)

# What ends a pipeline; whatever else it does, it runs.
_ENDS = ("done", "stopped", "failed")
# A pipeline that was started again after a failure still counts as failed until it has done a batch, or has
# run for so long without failing again.
_RECOVERED_S = 30.0
# The server forgets who says nothing for a month.
_REPEAT_S = 3600.0
_RETRY_S = 5.0
_PATIENCE_S = 1.0
# At the end of a run, what is left to tell has so long.
_LAST_WORDS_S = 5.0
_MOST_CHARACTERS = 1000


@dataclass(frozen=True)
class _Said:
    kind: str
    state: str
    why: str | None
    # When it was first to be said, and how many batches were done by then.
    at_s: float
    batches: int


class Reports:
    def __init__(self, server: Server, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._servers = [replace(server, url=url, patience_s=_PATIENCE_S) for url in server.urls]
        self._clock_s = clock_s
        self._said: dict[str, _Said] = {}
        # Since when they have run without a failure.
        self._running_since_s: dict[str, float] = {}
        # Names of those of which something is to be told.
        self._untold: set[str] = set()
        self._change = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def note(self, figures: Figures) -> None:
        """How one of them stands; called again and again."""
        now = self._clock_s()
        with self._change:
            said = self._said.get(figures.pipeline)
            state = figures.state if figures.state in _ENDS else "running"
            why = figures.note[:_MOST_CHARACTERS] or None if state == "failed" else None
            if state == "running":
                running_s = now - self._running_since_s.setdefault(figures.pipeline, now)
            else:
                running_s = 0.0
                self._running_since_s.pop(figures.pipeline, None)
            if said is not None:
                is_same = (said.state, said.why) == (state, why)
                is_doubtful = (
                    said.state == "failed" and state == "running" and figures.batches <= said.batches
                )
                if (is_same and now - said.at_s < _REPEAT_S) or (is_doubtful and running_s < _RECOVERED_S):
                    return
            self._said[figures.pipeline] = _Said(figures.kind, state, why, now, figures.batches)
            self._untold.add(figures.pipeline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tell_all, name="reports", daemon=True)
                self._thread.start()
            self._change.notify()

    def close(self) -> None:
        """Everything that was noted has been told, if the server took it within a few seconds."""
        with self._change:
            self._is_over = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join(_LAST_WORDS_S)

    def _tell_all(self) -> None:
        while True:
            with self._change:
                while not (self._untold or self._is_over):
                    self._change.wait()
                untold, self._untold = sorted(self._untold), set()
                said = [(name, self._said[name]) for name in untold]
                is_over = self._is_over
            failed = [name for name, one in said if not self._tell(name, one)]
            with self._change:
                if is_over and not (self._untold - set(failed)):
                    return
                self._untold.update(failed)
                if failed and not self._is_over:
                    self._change.wait(_RETRY_S)

    def _tell(self, name: str, said: _Said) -> bool:
        is_told = True
        for server in self._servers:
            client: Client = server.client()
            try:
                client.put_pipeline(name, said.kind, said.state, said.why)
            except Refused as refusal:
                # A key that may not, or an older server: it would be refused again.
                log.debug("how %s fares is not told: %s", name, refusal)
            except Unreachable as outage:
                log.debug("how %s fares is not told yet: %s", name, outage)
                is_told = False
            except Exception:
                log.warning("how %s fares cannot be told", name, exc_info=True)
            finally:
                client.close()
        return is_told

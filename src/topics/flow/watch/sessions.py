"""Watch sessions: the topics and positions of a stream, kept while no stream is open.

Sessions live in memory only. A session without a stream is forgotten after it was idle for too long. Calls
for other sessions check that, so no timer is needed.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from topics.core import WATCH_SESSION_IDLE_MS, limit_reached
from topics.flow.watch.delivery import WatchOptions
from topics.flow.watch.position import StreamPositions

_WID_BYTES = 16


class Known(msgspec.Struct, gc=False):
    """The newest incarnation of a topic that a stream has seen, and the last head in it."""

    epoch: int
    head: int


@dataclass(slots=True, eq=False)
class WatchSession:
    wid: str
    # Whose key opens it; None when keys are not in use.
    owner: object
    options: WatchOptions
    heartbeat_ms: int
    # Where the next stream starts. The stream that was opened last moves them.
    positions: StreamPositions
    known: dict[str, Known]
    idle_since: int = 0
    streams: int = 0

    def start(self, last_event_id: bytes | None, present: Callable[[str], int | None]) -> StreamPositions:
        """Return where a new stream begins: as stored, or lower if the client got less.

        `present` returns the epoch of the topic that has a name now.
        """
        self.positions = self.positions.rewound(last_event_id or b"", present)
        return self.positions

    def note(self, name: str, epoch: int, head: int) -> None:
        """Note the incarnation and the head that a stream has seen. An older incarnation changes nothing."""
        known = self.known[name]
        if epoch >= known.epoch:
            known.epoch, known.head = epoch, head


class WatchSessions:
    def __init__(self, maximum: int, now: Callable[[], int]) -> None:
        """`maximum` 0 means any number."""
        self._maximum = maximum
        self._now = now
        self._by_wid: dict[str, WatchSession] = {}
        # Sessions without a stream; the longest idle one comes first.
        self._idle: dict[str, WatchSession] = {}

    def __len__(self) -> int:
        self._forget_idle()
        return len(self._by_wid)

    def create(
        self,
        owner: object,
        options: WatchOptions,
        heartbeat_ms: int,
        positions: StreamPositions,
        known: dict[str, Known],
    ) -> WatchSession:
        if self._maximum and len(self) >= self._maximum:
            raise limit_reached("max_watch_sessions", self._maximum)
        wid = "wid_" + secrets.token_urlsafe(_WID_BYTES)
        session = WatchSession(wid, owner, options, heartbeat_ms, positions, known)
        self._by_wid[wid] = session
        self._rest(session)
        return session

    def find(self, wid: str) -> WatchSession | None:
        self._forget_idle()
        return self._by_wid.get(wid)

    def stream_opened(self, session: WatchSession) -> None:
        session.streams += 1
        self._idle.pop(session.wid, None)

    def stream_ended(self, session: WatchSession) -> None:
        session.streams -= 1
        if not session.streams:
            self._rest(session)

    def _rest(self, session: WatchSession) -> None:
        session.idle_since = self._now()
        self._idle[session.wid] = session

    def _forget_idle(self) -> None:
        oldest_allowed = self._now() - WATCH_SESSION_IDLE_MS
        while self._idle:
            session = next(iter(self._idle.values()))
            if session.idle_since >= oldest_allowed:
                return
            del self._idle[session.wid], self._by_wid[session.wid]

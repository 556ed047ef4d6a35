"""Watch sessions: which topics a stream covers and how far it has got, kept while no stream is open.

They live in memory only. A session without a stream is forgotten once it has been idle for too long; that is
noticed on the way to other sessions, so no timer is needed.
"""

import base64
import binascii
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from topics.flow.watch.subscription import WatchOptions
from topics.values import U64_MAX, WATCH_SESSION_IDLE_MS, limit_reached

_WID_BYTES = 16
_cursors = msgspec.json.Decoder(dict[str, int])


class Known(msgspec.Struct, gc=False):
    """The instance of a topic that a cursor belongs to, and the last head seen in it."""

    epoch: int
    head: int


@dataclass(slots=True, eq=False)
class Session:
    wid: str
    # Whose key opens it; None when keys are not in use.
    owner: object
    options: WatchOptions
    heartbeat_ms: int
    # Where the next stream starts. The stream opened last moves these as it goes.
    cursors: dict[str, int]
    known: dict[str, Known]
    idle_since: int = 0
    streams: int = 0

    def start(self, last_event_id: bytes | None) -> dict[str, int]:
        """The cursors of a new stream: the stored ones, or lower where the client knows it got less."""
        cursors = dict(self.cursors)
        for name, seq in (decode_cursors(last_event_id or b"") or {}).items():
            if seq < cursors.get(name, 0):
                cursors[name] = seq
        self.cursors = cursors
        return cursors

    def note(self, name: str, epoch: int, head: int) -> None:
        """What a stream learned about a topic. Instances only get newer; streams may end in any order."""
        known = self.known[name]
        if epoch >= known.epoch:
            known.epoch, known.head = epoch, head


class WatchSessions:
    def __init__(self, maximum: int, now: Callable[[], int]) -> None:
        """`maximum` 0 means any number."""
        self._maximum = maximum
        self._now = now
        self._by_wid: dict[str, Session] = {}
        # Those without a stream; the one idle for longest comes first.
        self._idle: dict[str, Session] = {}

    def __len__(self) -> int:
        self._forget_idle()
        return len(self._by_wid)

    def create(
        self,
        owner: object,
        options: WatchOptions,
        heartbeat_ms: int,
        cursors: dict[str, int],
        known: dict[str, Known],
    ) -> Session:
        if self._maximum and len(self) >= self._maximum:
            raise limit_reached("max_watch_sessions", self._maximum)
        wid = "wid_" + secrets.token_urlsafe(_WID_BYTES)
        session = Session(wid, owner, options, heartbeat_ms, cursors, known)
        self._by_wid[wid] = session
        self._rest(session)
        return session

    def find(self, wid: str) -> Session | None:
        self._forget_idle()
        return self._by_wid.get(wid)

    def stream_opened(self, session: Session) -> None:
        session.streams += 1
        self._idle.pop(session.wid, None)

    def stream_ended(self, session: Session) -> None:
        session.streams -= 1
        if not session.streams:
            self._rest(session)

    def _rest(self, session: Session) -> None:
        session.idle_since = self._now()
        self._idle[session.wid] = session

    def _forget_idle(self) -> None:
        oldest_allowed = self._now() - WATCH_SESSION_IDLE_MS
        while self._idle:
            session = next(iter(self._idle.values()))
            if session.idle_since >= oldest_allowed:
                return
            del self._idle[session.wid], self._by_wid[session.wid]


def encode_cursors(cursors: dict[str, int]) -> bytes:
    """The position in every topic of a session as one opaque word."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursors)).rstrip(b"=")


def decode_cursors(text: bytes) -> dict[str, int] | None:
    """None for anything that `encode_cursors` could not have made."""
    text = text.strip().rstrip(b"=")
    try:
        cursors = _cursors.decode(base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if any(not 0 <= seq <= U64_MAX for seq in cursors.values()):
        return None
    return cursors

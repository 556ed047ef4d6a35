"""Watch sessions, and the position of a stream in each of its topics.

A position is a seq, and the incarnation of the topic that it belongs to. Seqs of different incarnations are
never compared. The id of a frame is the position as one opaque word. It names the epoch of a topic in a later
incarnation:

    {"lantern":44,"tides":7}        {"lantern":44,"tides":7,"~":{"tides":12}}

Sessions live in memory only. A session without a stream is forgotten after it was idle for too long. Calls
for other sessions check that, so no timer is needed.
"""

import base64
import binascii
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from topics.core import NO_LIFE, U64_MAX, WATCH_SESSION_IDLE_MS, limit_reached
from topics.flow.watch.delivery import WatchOptions

# No topic can have this name.
_LATER = "~"
_id = msgspec.json.Decoder(dict[str, int | dict[str, int]])

Seqs = dict[str, int]
Epochs = dict[str, int]


class StreamPositions:
    """One position for every topic of a stream, or of a session that has no stream now."""

    __slots__ = ("epochs", "later", "seqs")

    def __init__(self) -> None:
        self.seqs: Seqs = {}
        self.epochs: Epochs = {}
        # The epochs of topics that are not known to be in their first incarnation.
        self.later: Epochs = {}

    def put(self, name: str, seq: int, epoch: int, *, first_life: bool) -> None:
        self.seqs[name] = seq
        self.enter(name, epoch, first_life=first_life)

    def enter(self, name: str, epoch: int, *, first_life: bool) -> None:
        """From now on, the seq of this topic belongs to this incarnation."""
        self.epochs[name] = epoch
        if first_life:
            self.later.pop(name, None)
        else:
            self.later[name] = epoch

    def forget(self, name: str) -> None:
        del self.seqs[name], self.epochs[name]
        self.later.pop(name, None)

    def event_id(self) -> bytes:
        return encode_id(self.seqs, self.later)

    def rewound(self, last_event_id: bytes, present: Callable[[str], int | None]) -> "StreamPositions":
        """Return these positions, lowered to those that the client says it got. None of them rises.

        A client that names another incarnation starts over in the present one; `present` returns its epoch.
        """
        positions = StreamPositions()
        positions.seqs, positions.epochs, positions.later = (
            dict(self.seqs),
            dict(self.epochs),
            dict(self.later),
        )
        seqs, later = decode_id(last_event_id) or ({}, {})
        for name in seqs.keys() & self.seqs.keys():
            epoch, known = later.get(name), self.epochs[name]
            if epoch == known or (epoch is None and name not in self.later):
                positions.seqs[name] = min(seqs[name], self.seqs[name])
            else:
                former = [one for one in (epoch, known) if one is not None and one != present(name)]
                positions.put(name, 0, former[0] if former else NO_LIFE, first_life=False)
        return positions


def encode_id(seqs: Seqs, later: Epochs) -> bytes:
    """Return the position in every topic as one opaque word. `later`: epochs of later incarnations."""
    full: dict[str, Any] = {**seqs, _LATER: later} if later else seqs
    return base64.urlsafe_b64encode(msgspec.json.encode(full)).rstrip(b"=")


def decode_id(text: bytes) -> tuple[Seqs, Epochs] | None:
    """Return the positions of an id; None for anything that `encode_id` could not have made."""
    text = text.strip().rstrip(b"=")
    try:
        found = _id.decode(base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    later = found.pop(_LATER, {})
    seqs = {name: seq for name, seq in found.items() if isinstance(seq, int)}
    if not isinstance(later, dict) or len(seqs) < len(found):
        return None
    if any(not 0 <= number <= U64_MAX for numbers in (seqs, later) for number in numbers.values()):
        return None
    return seqs, later


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

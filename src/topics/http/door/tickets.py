"""Tickets: one opening of one stream, within a minute, by a page that cannot send its key.

A browser's `EventSource` has no headers. With a ticket, no key ever stands in a URL, and so in no log.
"""

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from topics.http.door.base_path import without_base
from topics.http.door.keys import ApiKey
from topics.values import limit_reached

LIFETIME_S = 60.0
MOST_TICKETS = 10_000
_BESIDE = (b"ticket=", b"last_event_id=")


class _Ticket(NamedTuple):
    key: ApiKey | None
    # Its digest: a path may be as long as a body.
    path: bytes
    ends_s: float


class Tickets:
    def __init__(self, clock_s: Callable[[], float] = time.monotonic, *, base: bytes = b"") -> None:
        """`base`: a path that may stand in front of what is asked for."""
        self._clock_s = clock_s
        self._base = base
        # By digest, in the order in which they end: a lookup tells an attacker nothing about a ticket.
        self._open: dict[bytes, _Ticket] = {}

    def issue(self, key: ApiKey | None, path: bytes) -> str:
        now = self._clock_s()
        self._forget_ended(now)
        if len(self._open) >= MOST_TICKETS:
            raise limit_reached("max_tickets", MOST_TICKETS)
        ticket = secrets.token_urlsafe(24)
        self._open[_digest(ticket)] = _Ticket(key, self._stream(path), now + LIFETIME_S)
        return ticket

    def redeem(self, ticket: str, target: bytes) -> ApiKey | None:
        """The key that it was made with; None when it is not valid for this target, or not any more."""
        self._forget_ended(self._clock_s())
        digest = _digest(ticket)
        found = self._open.get(digest)
        if found is None or found.path != self._stream(target):
            return None
        del self._open[digest]
        return None if found.key is None or found.key.revoked else found.key

    def _stream(self, target: bytes) -> bytes:
        return sha256(without_ticket(without_base(target, self._base))).digest()

    def _forget_ended(self, now: float) -> None:
        while self._open:
            digest = next(iter(self._open))
            if self._open[digest].ends_s > now:
                return
            del self._open[digest]


def without_ticket(target: bytes) -> bytes:
    """A path and its query, but for what a page adds when it opens the stream."""
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and not part.startswith(_BESIDE)]
    return path + b"?" + b"&".join(kept) if kept else path


def _digest(ticket: str) -> bytes:
    return sha256(ticket.encode("utf-8", "replace")).digest()

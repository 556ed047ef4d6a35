"""Segment files that something outside the server reads by their path: they stay for as long as a lease runs.

Two kinds of readers hold files: those of one topic's sealed runs (`pins`), and backups (`ops.backup_holds`).
"""

import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from topics.core import limit_reached
from topics.log import Engine

LEASE_MS = 60_000


@dataclass(slots=True, kw_only=True)
class FilePin:
    # The numbers of the files.
    segments: Collection[int]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    # When the lease is over: on the clock that cannot be set, and in Unix time as it was reckoned then.
    ends_steady_ms: int = 0
    expires_ms: int = 0


H = TypeVar("H", bound=FilePin)


class FilePins(Generic[H]):
    """The holds of one kind of reader. What they name is neither removed nor moved."""

    def __init__(self, engine: Engine, limit_name: str) -> None:
        self._engine = engine
        self._limit_name = limit_name
        self._holds: dict[str, H] = {}
        engine.store.pinned_by.append(self.is_held)

    def __iter__(self) -> Iterator[H]:
        return iter(self._holds.values())

    def changed(self) -> None:
        """Called when there is a hold more or less."""

    def require_room(self, most: int) -> None:
        self.sweep()
        if len(self._holds) >= most:
            raise limit_reached(self._limit_name, most)

    def add(self, hold: H) -> H:
        self._extend(hold)
        self._holds[hold.id] = hold
        self.changed()
        return hold

    def _extend(self, hold: H) -> None:
        hold.ends_steady_ms = self._engine.steady_ms() + LEASE_MS
        hold.expires_ms = self._engine.now() + LEASE_MS

    def find(self, hold_id: str) -> H | None:
        """None when the hold is not there any more."""
        self.sweep()
        return self._holds.get(hold_id)

    def renew(self, hold_id: str) -> H | None:
        """Another lease from now on."""
        hold = self.find(hold_id)
        if hold is not None:
            self._extend(hold)
        return hold

    def release(self, hold_id: str) -> bool:
        if self.find(hold_id) is None:
            return False
        del self._holds[hold_id]
        self.changed()
        return True

    def is_held(self, segment: int) -> bool:
        self.sweep()
        return any(segment in hold.segments for hold in self._holds.values())

    def sweep(self) -> None:
        """Forget the holds whose lease has run out."""
        now = self._engine.steady_ms()
        ended = [hold for hold in self._holds.values() if hold.ends_steady_ms <= now]
        for hold in ended:
            del self._holds[hold.id]
        if ended:
            self.changed()

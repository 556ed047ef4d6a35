"""Holding a running server's files still, so that somebody beside it can copy them.

A hold names two snapshots, the segments they refer to and the journal from the first of them up to one exact
position: together a directory from which a server starts with everything that had been committed by then.
Until the lease is over these files are neither removed nor moved, and no delete flag in them is flipped: a
flag that ran ahead of the snapshots would change what recovery counts. Everything else goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass

import msgspec

from topics.flow.upkeep import Upkeep
from topics.log.engine import Engine
from topics.storage import journal as journal_files
from topics.storage import snapshot as snapshot_files
from topics.values.errors import limit_reached

LEASE_MS = 60_000
MAX_HOLDS = 16


@dataclass(slots=True)
class JournalPiece:
    path: str
    base: int
    end: int


@dataclass(slots=True)
class Hold:
    id: str
    expires_ms: int
    now_ms: int
    data_dir: str
    topics: int
    # The journal is wanted up to here: everything acknowledged before the hold was taken lies below.
    position: int
    snapshots: dict[int, str]
    segments: dict[int, str]
    journal: list[JournalPiece]
    journal_from: int


class _Beginning(msgspec.Struct, array_like=True, gc=False):
    """As much of a snapshot as has to be known here; reading on would take long with many topics."""

    position: int
    replay_from: int


_beginning = msgspec.msgpack.Decoder(_Beginning)


class Holds:
    def __init__(self, engine: Engine, upkeep: Upkeep) -> None:
        self._engine = engine
        self._upkeep = upkeep
        self._holds: dict[str, Hold] = {}
        readers_hold = engine.store.is_pinned
        engine.store.is_pinned = lambda number: readers_hold(number) or self._is_held(number)
        engine.store.is_frozen = self._is_held

    async def take(self) -> Hold:
        if len(self._holds) >= MAX_HOLDS:
            raise limit_reached("max_backups", MAX_HOLDS)
        loop = asyncio.get_running_loop()
        # Between two checkpoints: files and flags are at rest.
        async with self._upkeep.exclusive:
            hold = self._describe(await loop.run_in_executor(None, self._read_snapshots))
            self._holds[hold.id] = hold
            self._apply()
        self._sweep_later(hold)
        return hold

    def _read_snapshots(self) -> dict[int, int]:
        """Any thread: the snapshots that count, and from where on each of them needs the journal."""
        found = self._engine.snapshots.newest()
        return {number: _beginning.decode(body).replay_from for number, body in found.items()}

    def _describe(self, snapshots: dict[int, int]) -> Hold:
        engine = self._engine
        engine.queue.flush()
        journal_from = min(snapshots.values(), default=0)
        directory = os.path.abspath(engine.dirs.snapshots)
        return Hold(
            secrets.token_hex(16),
            engine.now() + LEASE_MS,
            engine.now(),
            os.path.abspath(engine.dirs.root),
            len(engine.sorted_names),
            engine.journal.position,
            {number: os.path.join(directory, snapshot_files.file_name(number)) for number in snapshots},
            # All there are: whatever either snapshot refers to is among them.
            {number: os.path.abspath(engine.store.path(number)) for number in sorted(engine.store.users)},
            self._journal_pieces(journal_from),
            journal_from,
        )

    def _journal_pieces(self, start: int) -> list[JournalPiece]:
        engine = self._engine
        directory = os.path.abspath(engine.dirs.journal)
        return [
            JournalPiece(os.path.join(directory, journal_files.file_name(file.base)), file.base, file.end)
            for file in engine.journal.files
            if file.end > start
        ]

    def renew(self, hold_id: str) -> Hold | None:
        """Another lease from now on; None when the hold is not there any more."""
        self._sweep()
        hold = self._holds.get(hold_id)
        if hold is not None:
            hold.expires_ms = self._engine.now() + LEASE_MS
        return hold

    def release(self, hold_id: str) -> bool:
        self._sweep()
        released = self._holds.pop(hold_id, None) is not None
        self._apply()
        return released

    def _is_held(self, number: int) -> bool:
        return any(number in hold.segments for hold in self._holds.values())

    def _apply(self) -> None:
        """Tell journal and snapshots what they have to keep."""
        holds = self._holds.values()
        self._engine.journal.kept_from = min((hold.journal_from for hold in holds), default=None)
        self._engine.snapshots.kept = frozenset(number for hold in holds for number in hold.snapshots)

    def _sweep(self) -> None:
        now = self._engine.now()
        for hold in [hold for hold in self._holds.values() if hold.expires_ms <= now]:
            del self._holds[hold.id]
        self._apply()

    def _sweep_later(self, hold: Hold) -> None:
        def look() -> None:
            self._sweep()
            if hold.id in self._holds:
                self._sweep_later(hold)

        delay_ms = max(hold.expires_ms - self._engine.now(), 1)
        asyncio.get_running_loop().call_later(delay_ms / 1000, look)

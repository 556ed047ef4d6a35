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

from topics.flow.upkeep import Upkeep
from topics.log.engine import Engine
from topics.log.state import SnapshotState, decode
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
    # The journal is wanted up to here: everything acknowledged before the hold was taken lies below.
    position: int
    snapshots: dict[int, str]
    segments: dict[int, str]
    journal: list[JournalPiece]
    journal_from: int


class Backups:
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
            states = await loop.run_in_executor(None, self._read_snapshots)
            hold = self._describe(states)
            self._holds[hold.id] = hold
            self._apply()
        self._sweep_later(hold)
        return hold

    def _read_snapshots(self) -> dict[int, SnapshotState]:
        bodies = self._engine.snapshots.newest()
        decoded = {number: decode(body) for number, body in bodies.items()}
        return {number: state for number, state in decoded.items() if state is not None}

    def _describe(self, states: dict[int, SnapshotState]) -> Hold:
        engine = self._engine
        engine.queue.flush()
        journal_from = min((state.replay_from for state in states.values()), default=0)
        directory = os.path.abspath(engine.dirs.snapshots)
        segments = {
            run.segment
            for state in states.values()
            for topic in state.topics
            for run in topic.runs
            if run.segment
        }
        return Hold(
            secrets.token_hex(16),
            engine.now() + LEASE_MS,
            engine.now(),
            os.path.abspath(engine.dirs.root),
            engine.journal.position,
            {number: os.path.join(directory, snapshot_files.file_name(number)) for number in states},
            {number: os.path.abspath(engine.store.path(number)) for number in sorted(segments)},
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

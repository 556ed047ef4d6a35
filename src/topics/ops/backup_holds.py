"""Holding a running server's files still, so that a backup can copy them.

A hold names two snapshots, the segments they refer to and the journal from the first of them up to one exact
position: together a directory from which a server starts with everything that had been committed by then.
Until the lease is over these files are neither removed nor moved, and no delete flag in them is flipped: a
flag that ran ahead of the snapshots would change what recovery counts. Everything else goes on meanwhile.
"""

import asyncio
import os
from dataclasses import dataclass

import msgspec

from topics.flow.checkpoints import Checkpoints
from topics.flow.pins import FilePin, FilePins
from topics.log import Engine

MAX_HOLDS = 16


@dataclass(slots=True)
class JournalPiece:
    path: str
    base: int
    end: int


@dataclass(slots=True, kw_only=True)
class BackupHold(FilePin):
    now_ms: int
    data_dir: str
    topics: int
    # The journal is wanted up to here: everything acknowledged before the hold was taken lies below.
    position: int
    # By their numbers, the paths.
    snapshots: dict[int, str]
    segments: dict[int, str]
    journal: list[JournalPiece]
    journal_from: int


class _Beginning(msgspec.Struct, array_like=True, gc=False):
    """As much of a snapshot as has to be known here; reading on would take long with many topics."""

    position: int
    replay_from: int


_beginning = msgspec.msgpack.Decoder(_Beginning)


class BackupHolds(FilePins[BackupHold]):
    def __init__(self, engine: Engine, checkpoints: Checkpoints) -> None:
        super().__init__(engine, "max_backups")
        self._checkpoints = checkpoints
        engine.store.is_frozen = self.is_held

    async def take(self) -> BackupHold:
        self.require_room(MAX_HOLDS)
        # Between two checkpoints: files and flags are at rest.
        async with self._checkpoints.exclusive:
            hold = self.add(self._describe(await asyncio.to_thread(self._read_snapshots)))
        self._sweep_later(hold)
        return hold

    def _read_snapshots(self) -> dict[int, int]:
        """Any thread: the snapshots that count, and from where on each of them needs the journal."""
        found = self._engine.snapshots.newest()
        return {number: _beginning.decode(body).replay_from for number, body in found.items()}

    def _describe(self, snapshots: dict[int, int]) -> BackupHold:
        engine = self._engine
        engine.queue.flush()
        journal_from = min(snapshots.values(), default=0)
        return BackupHold(
            now_ms=engine.now(),
            data_dir=os.path.abspath(engine.dirs.root),
            topics=len(engine.sorted_names),
            position=engine.journal.position,
            snapshots={n: os.path.abspath(engine.dirs.snapshot_path(n)) for n in snapshots},
            # All there are: whatever either snapshot refers to is among them.
            segments={n: os.path.abspath(engine.store.path(n)) for n in sorted(engine.store.users)},
            journal=[
                JournalPiece(os.path.abspath(engine.dirs.journal_path(file.base)), file.base, file.end)
                for file in engine.journal.files
                if file.end > journal_from
            ],
            journal_from=journal_from,
        )

    def changed(self) -> None:
        """Tell journal and snapshots what they have to keep."""
        self._engine.journal.kept_from = min((hold.journal_from for hold in self), default=None)
        self._engine.snapshots.kept = frozenset(number for hold in self for number in hold.snapshots)

    def _sweep_later(self, hold: BackupHold) -> None:
        """Journal and snapshots do not ask whether a lease has run out, so they are told in time."""

        def look() -> None:
            if self.find(hold.id) is not None:
                self._sweep_later(hold)

        delay_ms = max(hold.ends_steady_ms - self._engine.steady_ms(), 1)
        asyncio.get_running_loop().call_later(delay_ms / 1000, look)

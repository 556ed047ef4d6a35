"""Holding files still: what a hold names stays as it was, and the server goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import Lab
from topics.core.errors import ApiError
from topics.flow.checkpoints import Checkpoints
from topics.flow.pins import LEASE_MS
from topics.log.write.commit_loop import CommitLoop
from topics.ops.backup_holds import MAX_HOLDS, BackupHold, BackupHolds
from topics.storage.fileheader import FILE_HEADER_BYTES


def run(lab: Lab, action: Callable[[BackupHolds], Coroutine[Any, Any, Any]]) -> Any:
    async def driven() -> Any:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            return await action(BackupHolds(lab.engine, Checkpoints(lab.engine, commit, lab.checkpointer)))
        finally:
            commit.close()

    return asyncio.run(asyncio.wait_for(driven(), 30))


def take(lab: Lab) -> tuple[BackupHold, BackupHolds]:
    async def action(holds: BackupHolds) -> tuple[BackupHold, BackupHolds]:
        return await holds.take(), holds

    taken: tuple[BackupHold, BackupHolds] = run(lab, action)
    return taken


def fill(lab: Lab, count: int = 12) -> None:
    for number in range(count):
        lab.write("t", {"data": number, "tag": f"k{number % 3}"})


def busy(lab: Lab) -> None:
    """Whatever a server does to its files, several times over."""
    for round_ in range(4):
        fill(lab, 5)
        lab.delete("t", match=f"k{round_ % 3}")
        lab.delete("t", before=lab.topic("t").head - 3)
        lab.engine.rotate()
        for _ in range(3):
            lab.checkpoint(everything=True)


def held_files(hold: BackupHold) -> list[Path]:
    paths = [*hold.snapshots.values(), *hold.segments.values(), *(piece.path for piece in hold.journal)]
    return [Path(path) for path in paths]


def rebuild(hold: BackupHold, target: Path) -> None:
    """A data directory from nothing but what the hold names."""
    for name in ("snapshots", "segments", "journal"):
        (target / name).mkdir(parents=True)
    for path in (*hold.snapshots.values(), *hold.segments.values()):
        shutil.copy(path, target / Path(path).parent.name)
    for piece in hold.journal:
        content = Path(piece.path).read_bytes()[: FILE_HEADER_BYTES + hold.position - piece.base]
        (target / "journal" / Path(piece.path).name).write_bytes(content)


def test_the_files_give_the_state_of_that_moment_however_late_they_are_copied(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "data")
    fill(lab)
    lab.checkpoint(everything=True)
    lab.delete("t", match="k0")
    lab.checkpoint()
    fill(lab, 3)
    lab.delete("t", match="k1")
    before = lab.states()
    hold, _ = take(lab)
    rebuild(hold, tmp_path / "at-once")
    busy(lab)
    rebuild(hold, tmp_path / "later")
    for target in ("at-once", "later"):
        assert Lab(tmp_path / target).states() == before


def test_flags_do_not_change_while_they_are_held(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    fill(lab)
    lab.checkpoint(everything=True)
    hold, holds = take(lab)
    contents = {path: path.read_bytes() for path in map(Path, hold.segments.values())}
    lab.delete("t", match="k1")
    for _ in range(4):
        lab.checkpoint()
    assert {path: path.read_bytes() for path in contents} == contents
    deleted = lab.states()
    lab.restart()
    assert lab.states() == deleted
    # Let go of, they are flipped by the next checkpoints.
    holds.release(hold.id)
    for _ in range(2):
        lab.checkpoint()
    assert {path: path.read_bytes() for path in contents} != contents
    assert lab.states() == deleted
    lab.restart()
    assert lab.states() == deleted


def test_nothing_is_removed_until_it_is_released(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    fill(lab)
    lab.checkpoint(everything=True)
    fill(lab, 3)
    lab.delete("t")
    lab.checkpoint()  # the first snapshot without these segments: the next one would remove them
    hold, holds = take(lab)
    assert hold.segments
    busy(lab)
    assert all(path.exists() for path in held_files(hold))
    assert holds.release(hold.id)
    assert not holds.release(hold.id)
    busy(lab)
    assert not any(path.exists() for path in held_files(hold))
    assert len(lab.snapshot_files()) == 2


def test_a_hold_ends_with_its_lease(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    fill(lab)
    lab.checkpoint(everything=True)
    hold, holds = take(lab)
    lab.clock.advance(LEASE_MS - 1)
    renewed = holds.renew(hold.id)
    assert renewed is not None
    assert renewed.expires_ms == lab.clock.now_ms() + LEASE_MS
    lab.clock.advance(LEASE_MS)
    assert holds.renew(hold.id) is None
    lab.delete("t")
    busy(lab)
    assert not any(path.exists() for path in held_files(hold))


def test_there_are_only_so_many(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    async def action(holds: BackupHolds) -> None:
        for _ in range(MAX_HOLDS):
            await holds.take()
        with pytest.raises(ApiError, match="max_backups"):
            await holds.take()

    run(lab, action)

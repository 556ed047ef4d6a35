"""Power goes in the middle of a backup: what counts as a backup is whole, and the next one succeeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.disk import Crash, SimulatedDisk
from tests.log.harness import Lab
from topics.core.settings import Settings
from topics.ops.backup import Backup, Source, stopped_server
from topics.ops.backup_directory import BackupStore
from topics.ops.directory import Steps

LUCKS = 3


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    lab = Lab(tmp_path / "data")
    lab.write_each("t", 10, tag="x")
    lab.checkpoint()
    lab.delete("t", before=3, match="x")
    lab.checkpoint()
    lab.write_each("t", 3)
    lab.stop()
    with stopped_server(Settings(data_dir=str(tmp_path / "data"))) as source:
        yield source


def take(disk: SimulatedDisk, source: Source) -> None:
    disk.make_dirs("/backups")
    Backup(BackupStore(disk, "/backups"), source, Steps()).take()


def whole(disk: SimulatedDisk) -> int:
    """How many backups there are; every one of them is as it was written."""
    store = BackupStore(disk, "/backups")
    manifests = store.manifests()
    for manifest in manifests:
        assert store.verify(manifest, lambda _: None) == []
    return len(manifests)


def changes(source: Source) -> int:
    disk = SimulatedDisk()
    take(disk, source)
    assert whole(disk) == 1
    return disk.mutations


@pytest.mark.parametrize("others", [0, 1])
def test_a_crash_behind_every_change_of_a_backup(source: Source, others: int) -> None:
    last = changes(source)
    for index in range(1, last + 1):
        for luck in (None, *range(LUCKS)):
            disk = SimulatedDisk()
            for _ in range(others):
                take(disk, source)
            disk.crash_at = disk.mutations + index
            try:
                take(disk, source)
            except Crash:
                pass
            if luck is None:
                disk.kill()
            else:
                disk.crash(random.Random(f"{index}/{luck}"))
            assert whole(disk) >= others, "a finished backup is gone"
            take(disk, source)
            disk.crash(random.Random(luck))
            assert whole(disk) >= others + 1, "a backup that was taken is gone"

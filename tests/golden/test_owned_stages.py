"""Commits that have an owner are read as they were written, and written as they were."""

import shutil
from pathlib import Path

from tests.golden.make_owned_stages import COMMITS, GOLDEN, TS, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.flow.stages.identities import Identities
from topics.log.seal.snapshot_state import decode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.snapshot import SnapshotStore


def test_frames_and_snapshot_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    frames = [item for item in reader.frames() if isinstance(item, Frame)]
    assert [frame.kind for frame in frames] == [Kind.APPEND, Kind.OWNED_STAGE, Kind.OWNED_STAGE]
    assert {frame.ts for frame in frames} == {TS}
    replayed, loaded = Identities(), Identities()
    for frame in frames[1:]:
        replayed.replay(frame)
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    loaded.load(state.extensions[Identities.name])
    for found in (replayed, loaded):
        assert found.applications == 2
        for owned in COMMITS:
            assert found.find(owned.owner, owned.id, owned.commit.batch)[0] == owned.commit


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)

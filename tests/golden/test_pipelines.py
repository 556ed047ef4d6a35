"""What pipelines say of themselves: read as once written, and written as it was."""

import shutil
from pathlib import Path

import msgspec

from tests.golden.make_pipelines import FAILED, GOLDEN, RUNNING, TOLD, TS, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.flow import pipelines
from topics.log.seal.snapshot_state import decode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.snapshot import SnapshotStore


def test_frames_and_snapshot_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    frames = [item for item in reader.frames() if isinstance(item, Frame)]
    assert [(frame.kind, frame.ts) for frame in frames] == [(Kind.PIPELINE, TS)] * 2
    told = [pipelines._told.decode(frame.payload) for frame in frames]
    assert tuple((one.name, one.report) for one in told) == TOLD
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    saved = msgspec.msgpack.encode(state.extensions["pipelines"])
    assert pipelines._state.decode(saved) == [FAILED, RUNNING]


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)

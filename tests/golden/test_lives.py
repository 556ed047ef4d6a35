"""Topics in a later life, and cursors without a topic: read as once written, and written as they were."""

import shutil
from pathlib import Path

import msgspec

from tests.golden.make_lives import AGAIN, CURSORS, GOLDEN, LIVES, REMOVED, TS, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.flow import cursors
from topics.log.lifecycle import CreatePayload
from topics.log.lives import FormerNames, LivesState
from topics.log.seal.snapshot_state import decode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.snapshot import SnapshotStore


def test_frames_and_snapshot_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    again, removed = [item for item in reader.frames() if isinstance(item, Frame)]
    assert (again.kind, again.topic_id, again.ts) == (Kind.CREATE_AGAIN, 5, TS)
    assert msgspec.msgpack.decode(again.payload, type=CreatePayload) == AGAIN
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    assert msgspec.convert(state.extensions["lives"], LivesState) == LIVES
    assert cursors._state.decode(msgspec.msgpack.encode(state.extensions["named_cursors"])) == CURSORS
    assert (removed.kind, removed.topic_id) == (Kind.CURSOR, 0)
    moved = cursors._moved.decode(removed.payload)
    assert (moved.consumer, moved.cursor, moved.topic) == REMOVED


def test_names_are_known_by_the_same_digests_for_ever() -> None:
    names = FormerNames()
    names.add("orders")
    assert names.dump() == LIVES.names


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)

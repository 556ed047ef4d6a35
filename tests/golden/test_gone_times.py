"""When records went: read as once written, by the code and by the document, and written as it was."""

import shutil
import struct
from pathlib import Path

import msgspec

from tests.golden.make_gone_times import GOLDEN, STATE, STRETCHES, write_all
from topics.log.seal.snapshot_state import GONE_TIMES, decode
from topics.storage.filesystem import Filesystem
from topics.storage.snapshot import SnapshotStore


def _body(directory: Path) -> bytes:
    (body,) = SnapshotStore(Filesystem(), str(directory / "snapshots")).newest_first()
    return body


def test_the_snapshot_is_read(tmp_path: Path) -> None:
    assert decode(_body(shutil.copytree(GOLDEN, tmp_path / "golden"))) == STATE


def test_the_document_describes_it() -> None:
    *_, topics, extensions = msgspec.msgpack.decode(_body(GOLDEN))
    timed, whole = topics
    assert (len(timed), len(whole)) == (19, 18)
    assert tuple(struct.iter_unpack("<4q", timed[-1])) == STRETCHES
    assert extensions == {GONE_TIMES: True}


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert _body(tmp_path) == _body(GOLDEN)

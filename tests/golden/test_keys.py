"""Idempotency keys are read as they were written, written as they were, and known by the same digests."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec

from tests.golden.make_keys import DIGESTS, GOLDEN, KEYS, SALT, TS, write_all
from tests.golden.same_bytes import assert_same_bytes
from topics.log.recover.small_frames import rows_of
from topics.log.seal.snapshot_state import decode
from topics.log.write.all_keys import AllKeys, KeysState
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.keyed_frame import decode_keys
from topics.storage.snapshot import SnapshotStore
from topics.values.settings import Settings


def test_frames_are_read(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    frames = [item for item in reader.frames() if isinstance(item, Frame)]
    # An append as without keys, then its keys.
    assert [(f.kind, f.first_seq, f.count) for f in frames] == [
        (Kind.APPEND, 5, 2),
        (Kind.KEYED, 5, 2),
        (Kind.APPEND, 7, 2),
        (Kind.KEYED, 7, 2),
    ]
    rows = rows_of(frames[0])
    assert rows.text == b'{"$seq":5,"$ts":%d,"data":1}\n{"$seq":6,"$ts":%d,"data":"two"}\n' % (TS, TS)
    assert (rows.size, rows.tags, rows.hops) == (6, ["t", None], None)
    whole, each = (decode_keys(frame.payload) for frame in frames[1::2])
    assert (whole.salt, [*whole.offsets], [*whole.counts], whole.digests) == (SALT, [0], [2], DIGESTS[0])
    assert ([*each.offsets], [*each.counts], each.digests) == ([0, 1], [1, 1], DIGESTS[1] + DIGESTS[2])


def test_the_snapshot_is_read_and_its_keys_are_found(tmp_path: Path) -> None:
    golden = shutil.copytree(GOLDEN, tmp_path / "golden")
    (body,) = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    state = decode(body)
    assert state is not None
    assert msgspec.convert(state.extensions[AllKeys.name], KeysState) == KEYS
    config = SimpleNamespace(idempotency_window_ms=1000, durability="disk")
    topic = SimpleNamespace(id=1, config=config, head=8, assigned=8, keys=None)
    topic.keep_keys = lambda keys: setattr(topic, "keys", keys)
    all_keys = AllKeys(Settings(), bytes(16), lambda _: topic)  # type: ignore[arg-type,return-value]
    all_keys.load(state.extensions[AllKeys.name])
    keys = topic.keys
    found = [keys.find(keys.digest(key), TS + 5) for key in (b"a", b"b", b"c")]
    # The first key expired before the snapshot.
    assert found == [None, (7, 1), (8, 1)]


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert_same_bytes(tmp_path, GOLDEN, files=2)

"""Writes the golden files of topics in a later life, and of cursors that outlive a topic; later than make.py.

PYTHONPATH=src:. python tests/golden/make_lives.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from topics.flow.cursors import Cursors
from topics.flow.kept_cursors import Cursor, KeptCursor
from topics.log.lifecycle import CreatePayload
from topics.log.lives import Lives, LivesState
from topics.log.seal.snapshot_state import SnapshotState, encode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.snapshot import SnapshotStore
from topics.values.config import TopicConfig

GOLDEN = Path(__file__).parent / "lives"
TS = 1_700_000_000_000
AGAIN = CreatePayload("orders", TopicConfig(cap_records=1000, durability="fsync"), 1, 256)
# A topic in a later life, the digest of "orders", and that not all new topics are taken for later ones.
LIVES = LivesState((5).to_bytes(8, "little"), (0xA88CCDC9FA4974FB).to_bytes(8, "little"), False)
# Set in the first life of the topic, and looked at a day later; then removed while there was no topic.
CURSORS = {"orders": [KeptCursor(Cursor("lake", 4, 1, TS), TS + 86_400_000)]}
REMOVED = ("lake", None, "orders")


def write_all(root: Path) -> None:
    fs = Filesystem()
    for name in ("journal", "snapshots"):
        fs.make_dirs(str(root / name))
    journal = Journal(fs, str(root / "journal"), [], 0)
    journal.write([FrameDraft(Kind.CREATE_AGAIN, msgspec.msgpack.encode(AGAIN), topic_id=5, ts=TS)])
    journal.write([FrameDraft(Kind.CURSOR, msgspec.msgpack.encode(REMOVED), ts=TS)])
    journal.close()
    state = SnapshotState(1000, 500, 6, 2, TS, [], {Lives.name: LIVES, Cursors.name: CURSORS})
    SnapshotStore(fs, str(root / "snapshots")).write(encode(state))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

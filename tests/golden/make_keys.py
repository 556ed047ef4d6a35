"""Writes the golden files of idempotency keys, which came after those of make.py.

PYTHONPATH=src:. python tests/golden/make_keys.py
"""

from __future__ import annotations

import shutil
from array import array
from pathlib import Path

from topics import codec
from topics.log.seal.snapshot_state import SnapshotState, encode
from topics.log.write.all_keys import AllKeys, KeysState, TopicState
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.keyed_frame import encode_keys
from topics.storage.snapshot import SnapshotStore

GOLDEN = Path(__file__).parent / "keys"
TS = 1_700_000_000_000
SALT = bytes(range(16))
# Of the keys "a", "b" and "c" with that salt.
DIGESTS = [
    bytes.fromhex(text)
    for text in (
        "10bef6d635108819da1bab74a18918c2",
        "d18c9ef2045167cd3490e2bf568c8e46",
        "d1ced37e78761f2aa1b897a19bfc5671",
    )
]
# A key for two records, then two keys for one record each, at the same time; the first one is gone.
ROWS = array("q", [5, TS, 2, 7, TS + 1, 1 << 24])
KEYS = KeysState(SALT, [TopicState(1, TS - 5, TS, [(1, b"".join(DIGESTS), ROWS.tobytes())])])


def write_all(root: Path) -> None:
    fs = Filesystem()
    for name in ("journal", "snapshots"):
        fs.make_dirs(str(root / name))
    journal = Journal(fs, str(root / "journal"), [], 0)
    whole = encode_keys(SALT, array("I", [0]), array("I", [2]), DIGESTS[0])
    each = encode_keys(SALT, array("I", [0, 1]), array("I", [1, 1]), DIGESTS[1] + DIGESTS[2])
    for first_seq, keys in ((5, whole), (7, each)):
        write = codec.from_values([b"1", b'"two"'], None, None, ["t", None])
        rows = codec.encode([write], first_seq, TS)
        journal.write([FrameDraft(Kind.KEYED, (keys, rows.payload), 1, first_seq, 2, TS, rows.flags)])
    journal.close()
    state = SnapshotState(1000, 500, 6, 2, TS, [], {AllKeys.name: KEYS})
    SnapshotStore(fs, str(root / "snapshots")).write(encode(state))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

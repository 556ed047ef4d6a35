"""Writes the golden snapshot of a topic that knows when its records went; later than make.py.

PYTHONPATH=src:. python tests/golden/make_gone_times.py
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from topics.log.seal.snapshot_state import (
    GONE_TIMES,
    SnapshotState,
    TopicState,
    encode_snapshot,
    encode_topic,
)
from topics.storage.filesystem import Filesystem
from topics.storage.snapshot import SnapshotStore
from topics.values.config import TopicConfig

GOLDEN = Path(__file__).parent / "gone_times"
TS = 1_700_000_000_000
# Nobody knows since when the first two were gone; the others went within a second.
STRETCHES = ((1, 2, 0, TS), (3, 4, TS + 60_000, TS + 60_400))
LEDGER = (struct.pack("<q", 1), struct.pack("<q", 4), b"\1")
TOPIC = TopicState(
    *(7, "orders", TopicConfig(cap_records=1000), 1, 4, 5),
    *(4, 0, 0, 0, 0, TS, TS, 256, [], b"", [], LEDGER),
    gone_times=b"".join(struct.pack("<4q", *stretch) for stretch in STRETCHES),
)
# Nothing has gone from this one: its state is as it always was.
WHOLE = TopicState(
    8, "users", TopicConfig(), 1, 0, 1, 0, 0, 0, 0, 0, 0, None, 256, [], b"", [], (b"", b"", b"")
)
STATE = SnapshotState(1000, 500, 9, 2, TS + 90_000, [TOPIC, WHOLE], {GONE_TIMES: True})


def write_all(root: Path) -> None:
    fs = Filesystem()
    fs.make_dirs(str(root / "snapshots"))
    body = encode_snapshot(STATE, [encode_topic(topic) for topic in STATE.topics])
    SnapshotStore(fs, str(root / "snapshots")).write(b"".join(body))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

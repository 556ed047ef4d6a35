"""Writes the golden files of queues that lost jobs, and of jobs given back with an error: later than make.py.

PYTHONPATH=src:. python tests/golden/make_queue_losses.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from topics.flow.queues.leases import Packed
from topics.flow.queues.loss_journal import LossJournal
from topics.flow.queues.losses import LossState
from topics.flow.queues.registry import Queues
from topics.log.seal.snapshot_state import SnapshotState, encode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.snapshot import SnapshotStore

GOLDEN = Path(__file__).parent / "queue_losses"
TS = 1_700_000_000_000
LOSSES = [
    LossState(5, 40, [(51, 53)], 60, [(45, 46), (52, 52)], [(55, 58, 2)]),
    LossState(6, 0, [], 0, [], []),
]
JOBS: list[Packed] = [(61, 0, "", TS + 500, 2, "no glaze"), (62, 77, "worker", TS + 30_000, 1)]


def write_all(root: Path) -> None:
    fs = Filesystem()
    for name in ("journal", "snapshots"):
        fs.make_dirs(str(root / name))
    journal = Journal(fs, str(root / "journal"), [], 0)
    journal.write([FrameDraft(Kind.QUEUE_LOSSES, msgspec.msgpack.encode(LOSSES), ts=TS)])
    journal.write([FrameDraft(Kind.LEASE, msgspec.msgpack.encode(JOBS), topic_id=5, ts=TS)])
    journal.close()
    state = SnapshotState(1000, 500, 7, 2, TS, [], {LossJournal.name: LOSSES, Queues.name: [(5, 2, JOBS)]})
    SnapshotStore(fs, str(root / "snapshots")).write(encode(state))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

"""Writes the golden files of what pipelines say of themselves; later than make.py.

PYTHONPATH=src:. python tests/golden/make_pipelines.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from topics.flow.pipelines import Pipelines, Report
from topics.log.seal.snapshot_state import SnapshotState, encode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.snapshot import SnapshotStore

GOLDEN = Path(__file__).parent / "pipelines"
TS = 1_700_000_000_000
FAILED = Report("lake", "archive", "failed", "no space left", TS, TS + 5)
RUNNING = Report("orders-by-day", "route", "running", "", TS, TS)
TOLD = (("lake", FAILED), ("orders-by-day", None))


def write_all(root: Path) -> None:
    fs = Filesystem()
    for name in ("journal", "snapshots"):
        fs.make_dirs(str(root / name))
    journal = Journal(fs, str(root / "journal"), [], 0)
    for told in TOLD:
        journal.write([FrameDraft(Kind.PIPELINE, msgspec.msgpack.encode(told), ts=TS)])
    journal.close()
    state = SnapshotState(1000, 500, 6, 2, TS, [], {Pipelines.name: [FAILED, RUNNING]})
    SnapshotStore(fs, str(root / "snapshots")).write(encode(state))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

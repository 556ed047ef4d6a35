"""Writes the golden files of commits that have an owner, which came after those of make.py.

PYTHONPATH=src:. python tests/golden/make_owned_stages.py
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from topics import codec
from topics.flow.stages.identities import Commit, Identities, OwnedCommit, StageRange
from topics.log.seal.snapshot_state import SnapshotState, encode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import FrameDraft, Kind
from topics.storage.journal import Journal
from topics.storage.snapshot import SnapshotStore

GOLDEN = Path(__file__).parent / "owned_stages"
TS = 1_700_000_000_000
COMMITS = [
    OwnedCommit("", "stream-1", Commit(7, 2, 0xFEED, [StageRange("orders", 5, 6, 2, 1)]), []),
    OwnedCommit("a.|b.", "stream-1", Commit(0, 0, 0, []), ["forgotten"]),
]


def write_journal(fs: Filesystem, directory: str) -> None:
    journal = Journal(fs, directory, [], 0)
    rows = codec.encode([codec.from_values([b"5", b"6"], None, None, None)], 5, TS)
    append = FrameDraft(Kind.APPEND, rows.payload, ts=TS, topic_id=1, first_seq=5, count=2, flags=rows.flags)
    for commit, records in zip(COMMITS, ([append], []), strict=True):
        fact = FrameDraft(Kind.OWNED_STAGE, msgspec.msgpack.encode(commit), ts=TS)
        journal.write([FrameDraft(Kind.GROUP, [*records, fact], ts=TS)])
    journal.close()


def remembered(commits: list[OwnedCommit]) -> Identities:
    identities = Identities()
    for each in commits:
        identities.settle(identities.prepare(each.owner, each.id, each.commit, lambda _: False))
    return identities


def write_all(root: Path) -> None:
    write_files(root, write_journal, COMMITS)


def write_files(
    root: Path, write_journal: Callable[[Filesystem, str], None], commits: list[OwnedCommit]
) -> None:
    fs = Filesystem()
    for name in ("journal", "snapshots"):
        fs.make_dirs(str(root / name))
    write_journal(fs, str(root / "journal"))
    state = SnapshotState(1000, 500, 6, 2, TS, [], {Identities.name: remembered(commits).dump()})
    SnapshotStore(fs, str(root / "snapshots")).write(encode(state))


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

"""Writes the golden files: one small example of every format on disk, always the same bytes.

    PYTHONPATH=src:. python tests/golden/make.py

Run it only when a format changes on purpose. Files that a release has written stay readable: a change that an
older reader would get wrong raises the format's version, and its examples go to a directory of their own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np

from topics.log.batch import batch_from_columns
from topics.log.deletion import Selector
from topics.log.lifecycle import CreatePayload
from topics.log.payload import encode_append
from topics.log.state import RunState, SnapshotState, TopicState, encode
from topics.storage import fileheader
from topics.storage.columns import Columns
from topics.storage.filesystem import Filesystem, write_file_atomically
from topics.storage.frame import Kind
from topics.storage.journal import Journal
from topics.storage.journal_reader import PROOF, PROOF_MAGIC, PROOF_VERSION
from topics.storage.segment import SegmentWriter
from topics.storage.snapshot import SnapshotStore
from topics.storage.witness import Witness
from topics.values.config import TopicConfig

GOLDEN = Path(__file__).parent / "v1"
TS = 1_700_000_000_000
CONFIG = TopicConfig(cap_records=1000, durability="fsync")
BOOT = b"0123456789abcdef0123456789abcdef"

pack = msgspec.msgpack.encode


class FixedBoot(Filesystem):
    def boot_id(self) -> bytes:
        return BOOT


def write_journal(fs: Filesystem, directory: str) -> None:
    """Every kind of frame that is written today, over two files, with a sync between them."""
    journal = Journal(fs, directory, [], 0)

    def frame(kind: int, payload: bytes = b"", **fields: int) -> None:
        journal.write(journal.frame(kind, payload, ts=TS, **fields))

    create = CreatePayload("orders", CONFIG, 1, 4096)
    frame(Kind.CREATE, pack(create), topic_id=1)
    plain = batch_from_columns([b"1", b'"two"'])
    payload, flags = encode_append(plain, plain.render(1, TS))
    frame(Kind.APPEND, payload, topic_id=1, first_seq=1, count=2, flags=flags)
    full = batch_from_columns([b"3", b"[4]"], [None, b'{"a":1}'], ["n1", None], ["t1", "t2"])
    payload, flags = encode_append(full, full.render(3, TS), b"\0\1")
    frame(Kind.APPEND, payload, topic_id=1, first_seq=3, count=2, flags=flags)
    frame(Kind.ADVANCE, topic_id=2, first_seq=10, count=5)
    frame(Kind.HEADS, pack([(1, 4), (2, 14)]))
    journal.rotate()
    ticket = journal.begin_sync()
    ticket.run()
    journal.finish_sync(ticket)
    frame(Kind.DELETE, pack(Selector(5, before=2)), topic_id=1)
    frame(Kind.DELETE, pack(Selector(5, tag="t", is_prefix=True)), topic_id=1)
    frame(Kind.DELETE, pack(Selector(5, seqs=[3, 4])), topic_id=1)
    frame(Kind.CONFIG, pack(CONFIG), topic_id=1)
    frame(Kind.RESERVE, pack(8192), topic_id=1)
    frame(Kind.HOLE, topic_id=1, first_seq=5, count=8188)
    frame(Kind.LINES, pack((3, 4)), topic_id=1)
    frame(Kind.CLOCK)
    frame(Kind.DROP, topic_id=2)
    journal.close()
    proof = fileheader.encode(PROOF_MAGIC, PROOF_VERSION, 64)
    write_file_atomically(fs, directory, PROOF, [proof])


def plain_run() -> Columns:
    batch = batch_from_columns([b"1", b'"two"', b"null"])
    rows = batch.render(1, TS)
    return _columns(1, rows, batch.data_lens)


def full_run() -> Columns:
    batch = batch_from_columns([b"3", b"[4]"], [None, b'{"a":1}'], ["n1", None], ["t2", "t1"])
    run = _columns(40, batch.render(40, TS), batch.data_lens)
    run.meta_lens = np.array([0, 7], np.uint32)
    run.node_codes, run.nodes = np.array([1, 0], np.uint32), ["n1"]
    run.tag_codes, run.tags = np.array([1, 2], np.uint32), ["t2", "t1"]
    run.hops = np.array([0, 1], np.uint8)
    return run


def _columns(base: int, rows: bytes, data_lens: list[int]) -> Columns:
    lines = rows.splitlines(keepends=True)
    return Columns(
        base,
        len(lines),
        rows,
        np.cumsum([len(line) for line in lines]).astype(np.uint32),
        np.array(data_lens, np.uint32),
        np.full(len(lines), TS, np.int64),
    )


def write_segment(fs: Filesystem, directory: str) -> None:
    """Two runs in one file, the second with every column there is; one record deleted."""
    writer = SegmentWriter(1)
    writer.add(1, plain_run(), np.array([0, 1, 0], np.uint8))
    writer.add(2, full_run(), None)
    writer.write(fs, directory, 1)


def snapshot_state() -> SnapshotState:
    sealed = RunState(1, 3, 1, TS, TS, 2, 5, 1, b"\2\0\0\0")
    emptied = RunState(4, 2, 0, TS, TS, 0, 0, 2, b"")
    topic = TopicState(
        id=1,
        name="orders",
        config=CONFIG,
        seq_base=1,
        head=9,
        floor=1,
        cap_hi=0,
        ttl_hi=0,
        trim_hi=0,
        lost_hi=0,
        delete_below=0,
        last_ts=TS,
        last_write_ts=None,
        reserved=4096,
        runs=[sealed, emptied],
        unsealed_dead=(7).to_bytes(8, "little"),
        holes=[(8, 8, 4, True)],
        ledger=((1).to_bytes(8, "little"), (1).to_bytes(8, "little"), b"\0"),
    )
    return SnapshotState(1000, 500, 3, 2, TS, [topic], {"example": {"cursor": 7}})


def write_all(root: Path) -> None:
    fs = FixedBoot()
    journal, segments, snapshots = (str(root / name) for name in ("journal", "segments", "snapshots"))
    for directory in (journal, segments, snapshots):
        fs.make_dirs(directory)
    write_journal(fs, journal)
    write_segment(fs, segments)
    SnapshotStore(fs, snapshots).write(encode(snapshot_state()))
    witness = Witness(fs, str(root))
    witness.begin(100, TS)
    witness.acked(300)
    witness.synced(200)
    witness.clock(TS + 5)
    witness.close(clean=True)


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

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
import pyarrow as pa

from topics import codec
from topics.flow.kept_cursors import Cursor
from topics.flow.queues.leases import Packed
from topics.flow.routers import frames as routers
from topics.flow.routers.definitions import Definition, RouterOptions
from topics.flow.stages.identities import UnownedCommit, UnownedRange
from topics.flow.stages.parts import write_part
from topics.flow.stages.spool import part_path, stage_key
from topics.log.lifecycle import CreatePayload
from topics.log.remove.deletion import Selector
from topics.log.run import HotColumns
from topics.log.seal.snapshot_state import RunState, SnapshotState, TopicState, encode_snapshot, encode_topic
from topics.storage import fileheader
from topics.storage.columns import Columns
from topics.storage.filesystem import Filesystem, write_file_atomically
from topics.storage.frame import FrameDraft, Kind
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


def encoded(
    first_seq: int,
    data: list[bytes],
    metas: list[bytes | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
    hops: bytes | None = None,
) -> codec.Rows:
    return codec.encode([codec.from_values(data, metas, nodes, tags)], first_seq, TS, hops)


def every_column(first_seq: int, tags: list[str | None]) -> codec.Rows:
    """Two records with everything that a record can have."""
    return encoded(first_seq, [b"3", b"[4]"], [None, b'{"a":1}'], ["n1", None], tags, b"\0\1")


def write_journal(fs: Filesystem, directory: str) -> None:
    """Every kind of frame that is written today, over three files, with a sync between the first two."""
    journal = Journal(fs, directory, [], 0)

    def frame(kind: int, payload: bytes = b"", **fields: int) -> None:
        journal.write([FrameDraft(kind, payload, ts=TS, **fields)])

    create = CreatePayload("orders", CONFIG, 1, 4096)
    frame(Kind.CREATE, pack(create), topic_id=1)
    for rows in (encoded(1, [b"1", b'"two"']), every_column(3, ["t1", "t2"])):
        frame(Kind.APPEND, rows.payload, topic_id=1, first_seq=rows.first_seq, count=2, flags=rows.flags)
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
    journal.rotate()
    write_flow_frames(journal)
    journal.close()
    proof = fileheader.encode(PROOF_MAGIC, PROOF_VERSION, 64)
    write_file_atomically(fs, directory, PROOF, [proof])


OPTIONS = RouterOptions(filter_value="t", filter_is_prefix=True, exactly_once=True)
DEFINITION = Definition(1, "large", 1, 3, OPTIONS, 0)
STAMP = routers.Stamp("large", "orders", 1)
PIECES = [
    routers.Piece(routers.HOLE_IN_FRONT, 1, 2, 1),
    routers.Piece(routers.COPIES, 3, 2, 3),
    routers.Piece(routers.HOLE_INSIDE, 5, 1, 5),
    routers.Piece(routers.COPIES, 6, 2, 6, b"\0\0\0\0\3\0\0\0"),
]
STEP = routers.Step(1, [routers.Share(1, 9, 4, 3, TS, True, True, False, STAMP, PIECES)])
# Two routers at once, and originals that the journal will not have any more.
SPARED = routers.CarriedRows((10).to_bytes(8, "little"), [b'"ten"'], [b'{"a":1}'], ["n1"], [None], b"\1")
SPARED_STEP = routers.Step(
    1,
    [
        routers.Share(1, 10, 1, 3, TS, True, False, True, None, [routers.Piece(routers.COPIES, 10, 1, 8)]),
        routers.Share(2, 10, 0, 4, TS, False, True, True, None, []),
    ],
    SPARED,
)
# Leased, held back, returned.
JOBS: list[Packed] = [(1, 77, "worker", TS + 30_000, 1), (2, 0, "", TS + 500, 2), (3, 0, "", 0, 3)]
CURSOR = Cursor("lake", 4, 1, TS)
COMMITTED = UnownedCommit("stream-1", 7, 2, 0xFEED, [UnownedRange("orders", 5, 6, 2)])
# The name of a stage and of one of its parts, and its rows.
PART = ("load-1", "0")
PART_ROWS = {"topic": ["orders", None], "node": ["n1", None], "tag": [None, "t"], "data": ["1", '{"a":2}']}


def write_flow_frames(journal: Journal) -> None:
    """What routers, queues, consumers and stages write."""

    def frame(kind: int, payload: bytes, **fields: int) -> FrameDraft:
        return FrameDraft(kind, payload, ts=TS, **fields)

    journal.write([frame(Kind.ROUTER_PUT, pack(DEFINITION))])
    journal.write([frame(Kind.ROUTE, pack(STEP), topic_id=3, first_seq=1, count=7)])
    journal.write([frame(Kind.ROUTE, pack(SPARED_STEP))])
    journal.write([frame(Kind.ROUTER_DROP, pack(1))])
    journal.write([frame(Kind.LEASE, pack(JOBS), topic_id=5)])
    journal.write([frame(Kind.DEAD_LETTER, pack(Selector(9, seqs=[2, 3])), topic_id=5, count=2)])
    journal.write([frame(Kind.CURSOR, pack(("lake", CURSOR)), topic_id=1)])
    journal.write([frame(Kind.CURSOR, pack(("lake", None)), topic_id=1)])
    rows = encoded(5, [b"5", b"6"])
    append = frame(Kind.APPEND, rows.payload, topic_id=1, first_seq=5, count=2, flags=rows.flags)
    group: list[FrameDraft] = [append, frame(Kind.STAGE, pack(COMMITTED))]
    journal.write([FrameDraft(Kind.GROUP, group, ts=TS)])


def write_stage_part(fs: Filesystem, directory: str) -> None:
    batch = pa.RecordBatch.from_pydict(PART_ROWS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    write_part(
        fs,
        part_path(directory, stage_key("", PART[0]), PART[1]),
        sink.getvalue().to_pybytes(),
        max_bytes=1 << 20,
        default_topic=None,
        check_topic=lambda _: None,
    )


def plain_run() -> Columns:
    return columns_of(encoded(1, [b"1", b'"two"', b"null"]))


def full_run() -> Columns:
    return columns_of(every_column(40, ["t2", "t1"]))


def columns_of(rows: codec.Rows) -> Columns:
    columns = HotColumns(rows.first_seq)
    columns.extend(rows)
    return columns.view()


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


def flow_state() -> SnapshotState:
    """What the snapshot says of routers, queues, consumers and stages."""
    router = routers.RouterState(DEFINITION, 4, 7, {11: 8})
    extensions = {
        "routers": routers.RoutersState(2, [router], {1: 900}),
        "queues": [(5, 2, JOBS)],
        "cursors": {1: [CURSOR]},
        "stages": [COMMITTED],
    }
    return SnapshotState(1000, 500, 6, 2, TS, [], extensions)


def write_all(root: Path) -> None:
    fs = FixedBoot()
    names = ("journal", "segments", "snapshots", "stages")
    journal, segments, snapshots, stages = (str(root / name) for name in names)
    for directory in (journal, segments, snapshots, stages):
        fs.make_dirs(directory)
    write_journal(fs, journal)
    write_segment(fs, segments)
    for state in (snapshot_state(), flow_state()):
        body = encode_snapshot(state, [encode_topic(topic) for topic in state.topics])
        SnapshotStore(fs, snapshots).write(b"".join(body))
    write_stage_part(fs, stages)
    witness = Witness(fs, str(root))
    witness.begin(100, TS, 7)
    witness.acked(300)
    witness.synced(200)
    witness.reserved(300)
    witness.reserved(250)
    witness.clock(TS + 5)
    witness.close(clean=True)


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_all(GOLDEN)

"""Files written long ago are read today, and today's code still writes the same bytes.

When the second half fails because a format changed on purpose, see make.py. The first half must not fail.
"""

import shutil
from pathlib import Path

import msgspec
import pytest

from tests.golden.make import (
    BOOT,
    COMMITTED,
    CONFIG,
    CURSOR,
    DEFINITION,
    GOLDEN,
    JOBS,
    PART,
    PART_ROWS,
    SPARED_STEP,
    STEP,
    TS,
    FixedBoot,
    flow_state,
    full_run,
    routers,
    snapshot_state,
    write_all,
)
from topics.flow import cursors
from topics.flow.queues import registry as queues
from topics.flow.queues.leases import Entry
from topics.flow.stages import identities
from topics.flow.stages.parts import read_part
from topics.flow.stages.spool import SUFFIX, part_path, stage_key
from topics.log.lifecycle import CreatePayload
from topics.log.recover.small_frames import rows_of
from topics.log.remove.deletion import Selector
from topics.log.seal.snapshot_state import decode
from topics.storage.filesystem import Filesystem
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import JournalReader
from topics.storage.segment import DEAD, LIVE, Segment
from topics.storage.snapshot import SnapshotStore
from topics.storage.witness import Witness
from topics.values.config import TopicConfig

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy: reading may cut, and the witness is mapped for writing."""
    return shutil.copytree(GOLDEN, tmp_path / "golden")


@pytest.fixture
def frames(golden: Path) -> list[Frame]:
    reader = JournalReader(Filesystem(), str(golden / "journal"), start=0, proven=0)
    items = list(reader.frames())
    assert reader.cut is None
    assert len(reader.files()) == 3
    return [item for item in items if isinstance(item, Frame)]


# --- read ---------------------------------------------------------------------------------------------------


def test_frames(frames: list[Frame]) -> None:
    assert [(f.kind, f.topic_id, f.first_seq, f.count, f.flags) for f in frames] == [
        (Kind.CREATE, 1, 0, 0, 0),
        (Kind.APPEND, 1, 1, 2, 0),
        (Kind.APPEND, 1, 3, 2, 15),
        (Kind.ADVANCE, 2, 10, 5, 0),
        (Kind.HEADS, 0, 0, 0, 0),
        (Kind.DELETE, 1, 0, 0, 0),
        (Kind.DELETE, 1, 0, 0, 0),
        (Kind.DELETE, 1, 0, 0, 0),
        (Kind.CONFIG, 1, 0, 0, 0),
        (Kind.RESERVE, 1, 0, 0, 0),
        (Kind.HOLE, 1, 5, 8188, 0),
        (Kind.LINES, 1, 0, 0, 0),
        (Kind.CLOCK, 0, 0, 0, 0),
        (Kind.DROP, 2, 0, 0, 0),
        (Kind.ROUTER_PUT, 0, 0, 0, 0),
        (Kind.ROUTE, 3, 1, 7, 0),
        (Kind.ROUTE, 0, 0, 0, 0),
        (Kind.ROUTER_DROP, 0, 0, 0, 0),
        (Kind.LEASE, 5, 0, 0, 0),
        (Kind.DEAD_LETTER, 5, 0, 2, 0),
        (Kind.CURSOR, 1, 0, 0, 0),
        (Kind.CURSOR, 1, 0, 0, 0),
        # A group is read as the frames in it.
        (Kind.APPEND, 1, 5, 2, 0),
        (Kind.STAGE, 0, 0, 0, 0),
    ]
    assert {f.ts for f in frames} == {TS}
    assert [f.synced for f in frames] == [0] * 5 + [frames[5].position] * 19
    # Kinds that came later have examples of their own.
    assert {f.kind for f in frames} | {Kind.GROUP} == {kind for kind in Kind if kind <= Kind.GROUP}


def test_small_payloads(frames: list[Frame]) -> None:
    payloads = [f.payload for f in frames]
    assert msgspec.msgpack.decode(payloads[0], type=CreatePayload) == CreatePayload("orders", CONFIG, 1, 4096)
    assert unpack(payloads[4]) == [[1, 4], [2, 14]]
    assert [msgspec.msgpack.decode(payload, type=Selector) for payload in payloads[5:8]] == [
        Selector(5, before=2),
        Selector(5, tag="t", is_prefix=True),
        Selector(5, seqs=[3, 4]),
    ]
    assert msgspec.msgpack.decode(payloads[8], type=TopicConfig) == CONFIG
    assert unpack(payloads[9]) == 8192
    assert unpack(payloads[11]) == [3, 4]
    assert [len(payloads[i]) for i in (3, 10, 12, 13)] == [0, 0, 0, 0]


def test_flow_payloads(frames: list[Frame]) -> None:
    """What routers, queues, consumers and stages read back."""
    payloads = [f.payload for f in frames[14:]]
    assert routers.decode_definition(payloads[0]) == DEFINITION
    assert [routers.decode_step(payload) for payload in payloads[1:3]] == [STEP, SPARED_STEP]
    assert [piece.source_seqs().tolist() for piece in STEP.shares[0].pieces] == [[1, 2], [3, 4], [5], [6, 9]]
    assert routers.decode_router_id(payloads[3]) == 1
    assert queues._entries.decode(payloads[4]) == [Entry(*job) for job in JOBS]
    assert queues._selector.decode(payloads[5]) == Selector(9, seqs=[2, 3])
    moved = [cursors._moved.decode(payload) for payload in payloads[6:8]]
    assert [(each.consumer, each.cursor) for each in moved] == [("lake", CURSOR), ("lake", None)]
    assert identities._unowned.decode(payloads[9]) == COMMITTED


def u32(values: bytes) -> list[int]:
    return memoryview(values).cast("I").tolist()


def test_append_payloads(frames: list[Frame]) -> None:
    rows = rows_of(frames[1])
    assert rows.text == b'{"$seq":1,"$ts":%d,"data":1}\n{"$seq":2,"$ts":%d,"data":"two"}\n' % (TS, TS)
    assert (u32(rows.data_lens), rows.size) == ([1, 5], 6)
    assert (rows.meta_lens, rows.nodes, rows.tags, rows.hops) == (None, None, None, None)
    rows = rows_of(frames[2])
    assert rows.text == (
        b'{"$seq":3,"$ts":%d,"$node":"n1","data":3}\n{"$seq":4,"$ts":%d,"data":[4],"meta":{"a":1}}\n'
        % (TS, TS)
    )
    assert rows.meta_lens is not None
    assert (u32(rows.data_lens), u32(rows.meta_lens)) == ([1, 3], [0, 7])
    assert (rows.nodes, rows.tags, rows.hops) == (["n1", None], ["t1", "t2"], b"\0\1")


def test_segment(golden: Path) -> None:
    segment = Segment(Filesystem(), str(golden / "segments" / "0000000000000001.segment"))
    plain, full = segment.entry(1, 1), segment.entry(2, 40)
    for entry in (plain, full):
        segment.verify(entry)
        assert (entry.first_ts, entry.last_ts) == (TS, TS)
    rows = bytes(segment.columns(plain).rows)
    assert rows.splitlines()[2] == b'{"$seq":3,"$ts":%d,"data":null}' % TS
    assert segment.flags(plain).tolist() == [LIVE, DEAD, LIVE]
    found = segment.columns(full)
    assert bytes(found.rows) == full_run().rows
    assert found.ends.tolist()[-1] == len(found.rows)
    assert found.meta_lens is not None
    assert found.meta_lens.tolist() == [0, 7]
    assert found.hops is not None
    assert found.hops.tolist() == [0, 1]
    assert found.node_codes is not None
    assert (found.node_codes.tolist(), found.nodes) == ([1, 0], ["n1"])
    assert found.tag_codes is not None
    assert (found.tag_codes.tolist(), found.tags) == ([2, 1], ["t1", "t2"])
    assert segment.tagged(full, 1).tolist() == [1]
    segment.close()


def test_snapshot(golden: Path) -> None:
    flow, body = SnapshotStore(Filesystem(), str(golden / "snapshots")).newest_first()
    assert decode(body) == snapshot_state()
    state = decode(flow)
    assert state is not None
    saved, expected = state.extensions, flow_state().extensions
    assert saved.keys() == expected.keys()
    assert routers.state_from_plain(saved["routers"]) == expected["routers"]
    assert saved["queues"] == [[5, 2, [list(job) for job in JOBS]]]
    assert cursors._former_state.decode(pack(saved["cursors"])) == expected["cursors"]
    assert identities._unowned_state.decode(pack(saved["stages"])) == expected["stages"]


def test_a_part_of_a_stage(golden: Path) -> None:
    check_part(golden)


def check_part(root: Path) -> None:
    part = read_part(Filesystem(), part_path(str(root / "stages"), stage_key("", PART[0]), PART[1]))
    (batch,) = part.batches
    assert batch.to_pydict() == {**PART_ROWS, "meta": [None, None]}
    assert (part.about.count, part.about.topics) == (2, ["orders", None])


def test_witness(golden: Path) -> None:
    witness = Witness(FixedBoot(), str(golden))
    said = witness.previous
    assert said.reserved == 300
    assert (said.acked, said.synced, said.clock_ms, said.clean) == (300, 200, TS + 5, True)
    assert said.same_boot
    assert BOOT in (golden / "witness").read_bytes()
    witness.close(clean=False)


# --- write --------------------------------------------------------------------------------------------------


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    write_all(tmp_path)
    written = {
        path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    golden = {path.relative_to(GOLDEN): path.read_bytes() for path in GOLDEN.rglob("*") if path.is_file()}
    assert written.keys() == golden.keys()
    check_part(tmp_path)
    for path, data in golden.items():
        if path.suffix == SUFFIX:
            continue  # most of its bytes are Arrow's, and another release of it may choose others
        assert written[path] == data, f"{path} is written differently; see make.py"

"""docs/formats.md describes the files that the code writes: its tables are parsed, and read them."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.support.disk import HookedDisk
from topics import codec
from topics.codec.stored import HAS_HOPS, HAS_META
from topics.core import FIELDS
from topics.flow.cursors import Cursors, StoredCursor
from topics.flow.pipelines import Pipelines, Report
from topics.flow.queues.leases import Entry
from topics.flow.queues.losses import LossState
from topics.flow.queues.registry import LossJournal, Queues
from topics.flow.routers import definitions as routers
from topics.flow.routers.definitions import Definition, RouterOptions
from topics.flow.routers.recovery import RouterRecovery
from topics.flow.stages.identities import (
    KEPT_PART_DIGESTS,
    REMEMBERED_BATCHES,
    REMEMBERED_REQUESTS,
    Commit,
    Identities,
    OwnedCommit,
    StageRange,
)
from topics.flow.stages.parts import write_part
from topics.flow.stages.spool import IDLE_MS, SUFFIX, part_path, stage_key
from topics.log.lives import Lives, LivesState
from topics.log.remove import ledger
from topics.log.remove.ledger import MAX_STRETCHES
from topics.log.run import HotColumns
from topics.log.seal.sealer import SHARED_RUNS
from topics.log.seal.snapshot_state import RunState, SnapshotState, TopicState
from topics.log.write.all_keys import AllKeys, TopicKeysState
from topics.ops import backup_directory as backups
from topics.ops.restore import STAGING
from topics.storage import (
    fileheader,
    identity,
    journal,
    journal_reader,
    segment,
    snapshot,
    witness,
)
from topics.storage.directories import Directories
from topics.storage.fileheader import FILE_HEADER_BYTES, checksum
from topics.storage.frame import (
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    FrameDraft,
    Header,
    Kind,
    decode_header,
    encode_header,
    encode_keys,
)

TEXT = (Path(__file__).parent.parent.parent / "docs" / "formats.md").read_text()
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}
TS = 1_700_000_000_000
BOOT = b"0123456789abcdef0123456789abcdef"
SALT = bytes(range(16))
# The name of a stage and of one of its parts, and its rows.
PART = ("load-1", "0")
PART_ROWS = {"topic": ["orders", None], "node": ["n1", None], "tag": [None, "t"], "data": ["1", '{"a":2}']}

Row = list[str]


FS = HookedDisk(boot=BOOT)


def encoded(first_seq: int) -> codec.Rows:
    """Two records with everything that a record can have."""
    write = codec.from_values([b"3", b"[4]"], [None, b'{"a":1}'], (["t2", "t1"], ["n1", None]))
    return codec.encode([write], first_seq, TS, b"\0\1")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of every kind."""
    root = tmp_path_factory.mktemp("formats")
    frames = journal.Journal(FS, str(root), [], 0)
    rows = encoded(1)
    about = {"topic_id": 1, "first_seq": 1, "count": 2, "ts": TS, "flags": rows.flags}
    frames.write([FrameDraft(Kind.APPEND, rows.payload, **about)])
    digest = hashlib.blake2b(b"a", digest_size=16, salt=SALT).digest()
    keys = encode_keys(SALT, array("I", [0]), array("I", [2]), digest)
    frames.write([FrameDraft(Kind.KEYED, keys + bytes(rows.payload), **about)])
    frames.close()
    (root / journal_reader.PROOF).write_bytes(fileheader.encode(journal_reader.PROOF_MAGIC, 64))
    columns = HotColumns(40)
    columns.extend(encoded(40))
    writer = segment.SegmentWriter(1)
    writer.add(2, columns.view(), np.array([0, 1], np.uint8))
    writer.write(FS, str(root), 1)
    state = SnapshotState(1000, 500, 3, 2, TS, [], {})
    snapshot.SnapshotStore(FS, str(root)).write(msgspec.msgpack.encode(state))
    page = witness.Witness(FS, str(root))
    page.begin(100, TS, 7)
    page.acked(300)
    page.synced(200)
    page.reserved(300)
    page.clock(TS + 5)
    page.close(clean=True)
    write_stage_part(root)
    return root


def write_stage_part(root: Path) -> None:
    batch = pa.RecordBatch.from_pydict(PART_ROWS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path = part_path(str(root), stage_key("", PART[0]), PART[1])
    body = sink.getvalue().to_pybytes()
    write_part(FS, path, body, max_bytes=1 << 20, default_topic=None, check_topic=lambda _: None)


def frame(written: Path, kind: int) -> tuple[bytes, Header, bytes]:
    """The bytes of a frame's header, what they say, and its payload."""
    data, at = (written / journal.file_name(0)).read_bytes(), FILE_HEADER_BYTES
    while (header := decode_header(data, at)) is not None:
        payload_at = at + HEADER_BYTES
        if header.kind == kind:
            return data[at:payload_at], header, data[payload_at:][: header.payload_length]
        at = payload_at + header.payload_length
    raise AssertionError(f"no frame of kind {kind}")


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def tables(title: str) -> list[list[Row]]:
    """The tables under a heading, each as its rows without the head."""
    found: list[list[Row]] = []
    previous = ""
    for line in section(title).splitlines():
        if line.startswith("|"):
            if not previous.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        previous = line
    return [rows[2:] for rows in found]


def layout(title: str) -> dict[str, tuple[int, int, str]]:
    """Fields of a byte table, which must leave no gaps."""
    rows = [(int(offset), int(size), kind, name) for offset, size, kind, name in tables(title)[0]]
    for (offset, size, _, _), following in pairwise(rows):
        assert offset + size == following[0]
    for _, size, kind, _ in rows:
        assert size == SIZES.get(kind, size)
    return {name: (offset, size, kind) for offset, size, kind, name in rows}


def length(title: str) -> int:
    return max(offset + size for offset, size, _ in layout(title).values())


def read(title: str, data: bytes, at: int = 0) -> dict[str, int | bytes]:
    values: dict[str, int | bytes] = {}
    for name, (offset, size, kind) in layout(title).items():
        raw = data[at + offset : at + offset + size]
        values[name] = raw if kind == "bytes" else int.from_bytes(raw, "little")
    return values


FILES = {
    "journal": (journal.file_name(0), journal.MAGIC, 0),
    "segment": (segment.file_name(1), segment.MAGIC, 1),
    "snapshot": (snapshot.file_name(1), snapshot.MAGIC, None),
    "proven": (journal_reader.PROOF, journal_reader.PROOF_MAGIC, 64),
}


def test_every_file_is_listed() -> None:
    rows = {row[0]: row for row in tables("Header of a file")[1]}
    assert rows.keys() == FILES.keys()
    assert length("Header of a file") == FILE_HEADER_BYTES
    assert f"The format is {fileheader.FORMAT} " in section("Header of a file")


@pytest.mark.parametrize("name", FILES)
def test_file_headers(written: Path, name: str) -> None:
    path, magic, value = FILES[name]
    data = (written / path).read_bytes()
    (row,) = (row for row in tables("Header of a file")[1] if row[0] == name)
    assert row[1] == f"`{magic.decode()}`"
    covered = [data[FILE_HEADER_BYTES:]] if "then the body" in row[3] else []
    assert read("Header of a file", data) == {
        "magic": magic,
        "format": fileheader.FORMAT,
        "mark": 0,
        "value": len(data) - FILE_HEADER_BYTES if value is None else value,
        "checksum": checksum(data[:24], *covered),
    }


def test_frame_header(written: Path) -> None:
    text = section("Frame header")
    assert length("Frame header") == HEADER_BYTES
    assert f"`{FRAME_MAGIC_BYTES.decode()}`" in text
    assert f"which follows at byte {HEADER_BYTES}" in text
    data, header, payload = frame(written, Kind.APPEND)
    values = read("Frame header", data)
    for name in values.keys() - {"magic", "header_checksum", "ahead_high", "ahead_low"}:
        assert values[name] == getattr(header, name)
    assert values["header_checksum"] == checksum(data[8:]) & 0xFFFFFFFF
    assert values["payload_checksum"] == checksum(payload)
    ahead = encode_header(Kind.APPEND, 0, 1, 1, 1, 2**50, 0, 0, 2**47 + 5, position=0, synced=0)
    values = read("Frame header", ahead)
    assert (values["ahead_high"], values["ahead_low"]) == (2**15, 5)


def test_kinds() -> None:
    assert {row[1]: int(row[0]) for row in tables("Kinds")[0]} == {kind.name: kind.value for kind in Kind}


ARRAYS = {
    "definition": Definition,
    "options": RouterOptions,
    "step": routers.Step,
    "copy plan": routers.CopyPlan,
    "stamp": routers.Stamp,
    "piece": routers.CopyRange,
    "carried": routers.CarriedRows,
    "losses": LossState,
    "cursor": StoredCursor,
    "report": Report,
    "commit": Commit,
    "owned commit": OwnedCommit,
    "range": StageRange,
}


def test_arrays_of_routers_queues_cursors_and_stages() -> None:
    rows = tables("Routers, queues, cursors and stages")[0]
    fields = {name: tuple(listed.replace("`", "").split(", ")) for name, listed in rows}
    # A job is a plain tuple, and without a lease its time has another meaning.
    assert fields.pop("job") == Entry._fields
    assert fields == {name: struct.__struct_fields__ for name, struct in ARRAYS.items()}
    assert (routers.COPIES, routers.HOLE_IN_FRONT, routers.HOLE_INSIDE) == (0, 1, 2)
    text = section("Routers, queues, cursors and stages")
    assert "the mark `_topics_router`" in text
    assert f"at most {KEPT_PART_DIGESTS} parts" in text
    assert f"the last {REMEMBERED_REQUESTS} requests" in text


def test_the_map_of_a_snapshot() -> None:
    described = {row[0].strip("`") for row in tables("Snapshot")[0]}
    extensions = (Identities, Lives, AllKeys, Cursors, LossJournal, Pipelines, Queues, RouterRecovery)
    assert described == {extension.name for extension in extensions}
    assert ", ".join(f"`{name}`" for name in LivesState.__struct_fields__) in section("Snapshot")
    assert ", ".join(f"`{name}`" for name in TopicKeysState.__struct_fields__) in section("Snapshot")
    text = section("Snapshot")
    assert ", ".join(f"{kind} {name}" for kind, name in enumerate(ledger.KIND_NAMES)) in text
    assert f"the last {REMEMBERED_BATCHES} batches" in text
    assert f"of at most {MAX_STRETCHES}\nstretches" in text
    assert len(routers.RouterState.__struct_fields__) == 4
    assert len(routers.RoutersState.__struct_fields__) == 3


def test_the_part_of_a_stage(written: Path) -> None:
    """Read by the document alone."""
    (path,) = written.glob(f"*{SUFFIX}")
    stage, part = (hashlib.sha256(name.encode()).hexdigest()[:32] for name in PART)
    assert path.name == f"{stage}-{part}.part"
    content, digest = path.read_bytes()[:-8], path.read_bytes()[-8:]
    assert int.from_bytes(digest, "little") == checksum(content)
    reader = pa.ipc.open_stream(content)
    rows = reader.read_all()
    text = section("Part of a stage")
    for name in rows.column_names:
        assert f"`{name}`" in text
    about = json.loads(reader.schema.metadata[b"topics"])
    values = [[b"\xff" if v is None else v.encode() for v in row.values()] for row in rows.to_pylist()]
    assert about["digest"] == sum(checksum(b"\xfe".join(row)) for row in values) % 2**64
    assert (about["count"], about["topics"]) == (2, ["orders", None])
    assert about.keys() == {"count", "bytes", "digest", "topics"}
    assert IDLE_MS == 3_600_000
    owner = hashlib.sha256(b"a.|b.").hexdigest()[:32]
    assert stage_key("a.|b.", PART[0]) == f"{owner}-{stage}"


def test_backups() -> None:
    rows = {row[0].strip("`"): row[1] for row in tables("Backups")[0]}
    listed = re.findall(r"`([a-z_]+)`", rows[f"<name>/{backups.MANIFEST}"])
    assert tuple(listed) == backups.Manifest.__struct_fields__
    assert f"`format` {fileheader.FORMAT}" in rows[f"<name>/{backups.MANIFEST}"]
    assert {f"<name>/{backups.FLAGS}", backups.LOCK} <= rows.keys()
    assert backups.Copied.__struct_fields__ == ("name", "size", "checksum")


def test_identities() -> None:
    (rows,) = tables("Identity")
    keys: dict[str, list[str]] = {}
    file = ""
    for name, key, _ in rows:
        file = name.strip("`") or file
        keys.setdefault(file, []).append(key.strip("`"))
    assert keys == {
        identity.IDENTITY: [*identity.Identity.__struct_fields__],
        identity.OWNER: [*identity.Owner.__struct_fields__],
    }
    text, digest, end = identity.encode(identity.Identity("0f" * 16)).split(b"\n")
    assert json.loads(text) == {"identity": "0f" * 16}
    assert (digest, end) == (f"{checksum(text):016x}".encode(), b"")


def test_keyed_payload(written: Path) -> None:
    """Read by the document alone."""
    payload = frame(written, Kind.KEYED)[2]
    sizes = [row[1] for row in tables("Payload of KEYED")[0]]
    assert sizes == ["4 (u32)", "16", "4 × keys", "4 × keys", "16 × keys", "the rest"]
    keys, at, parts = int.from_bytes(payload[:4], "little"), 4, []
    for size in (16, 4 * keys, 4 * keys, 16 * keys):
        parts.append(payload[at : at + size])
        at += size
    salt, offsets, counts, digests = parts
    assert (offsets, counts) == (bytes(4), b"\2\0\0\0")
    assert digests == hashlib.blake2b(b"a", digest_size=16, salt=salt).digest()
    assert payload[at:] == frame(written, Kind.APPEND)[2]


def test_append_flags() -> None:
    flags = {row[0].split()[0]: row[2] for row in tables("Payload of APPEND")[0] if "flag" in row[2]}
    meta = next(row[2] for row in tables("Payload of APPEND")[0] if "`meta`" in row[0])
    assert meta == f"flag {HAS_META}"
    assert flags["router"] == f"flag {HAS_HOPS}"
    for field in FIELDS:
        assert flags[f"{field.name}s:"] == f"flag {field.flag}"


def test_segment(written: Path) -> None:
    data = (written / segment.file_name(1)).read_bytes()
    text = section("Segment")
    assert f"| header | {FILE_HEADER_BYTES} bytes |" in text
    assert f"the last {segment.TRAILER_BYTES} bytes" in text
    assert f"a multiple of {segment.ALIGNMENT}" in text
    assert length("Segment trailer") == segment.TRAILER_BYTES
    trailer = read("Segment trailer", data, len(data) - segment.TRAILER_BYTES)
    at, size = trailer["footer_offset"], trailer["footer_length"]
    assert isinstance(at, int)
    assert isinstance(size, int)
    assert trailer["footer_checksum"] == checksum(data[at : at + size])
    assert trailer["magic"] == segment.MAGIC
    flags = section("Flags: the one thing that changes in place")
    assert f"`0x{segment.DEAD:02X}` means" in flags
    assert f"have `0x{segment.LIVE:02X}`" in flags
    assert f"or up to {SHARED_RUNS} of one topic" in text


def test_segment_columns(written: Path) -> None:
    described = {row[0].strip("`") for row in tables("Footer")[0]}
    with segment.Segment(FS, str(written / segment.file_name(1))) as opened:
        assert described == opened.entry(2, 40).columns.keys()


def test_snapshot_fields() -> None:
    text = section("Snapshot")
    for struct in (TopicState, RunState):
        listed = ", ".join(f"`{name}`" for name in struct.__struct_fields__)
        assert listed in text.replace("\n", " ")
    assert len(SnapshotState.__struct_fields__) == 7


def test_witness(written: Path) -> None:
    page = (written / witness.FILE_NAME).read_bytes()
    assert f"{len(page)} bytes, mapped" in section("Witness")
    assert length("Witness") == len(page)
    values = read("Witness", page)
    magic = values.pop("magic")
    assert isinstance(magic, bytes)
    assert f"The magic is `{magic.decode()}`" in section("Witness")
    assert values == {
        "boot_id": BOOT,
        "acked": 300,
        "synced": 200,
        "clock": TS + 5,
        "clean": 1,
        "reserved": 300,
    }


def test_names_and_sizes() -> None:
    paths = [row[0].strip("`") for row in tables("The directory")[0]]
    assert f"journal/<base>{journal.SUFFIX}" in paths
    assert f"segments/<number>{segment.SUFFIX}" in paths
    assert f"snapshots/<number>{snapshot.SUFFIX}" in paths
    assert f"journal/{journal_reader.QUARANTINE}/*.tail" in paths
    assert f"journal/{journal_reader.PROOF}" in paths
    assert witness.FILE_NAME in paths
    assert Directories("").lock in paths
    assert f"stages/<stage>-<part>{SUFFIX}" in paths
    assert f"{STAGING}/" in paths
    assert {path.split("/")[0] for path in paths} == {*Directories("").entries, STAGING}
    widths = re.findall(r"`<base>` has (\d+) digits, `<number>` (\d+)", TEXT)[0]
    stems = [journal.file_name(0), segment.file_name(0)]
    assert [int(width) for width in widths] == [len(stem.partition(".")[0]) for stem in stems]
    assert f"has reached {journal.ROTATE_BYTES // 1024**2} MiB" in TEXT
    assert snapshot.KEPT == 2

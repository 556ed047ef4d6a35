"""Every decoder against bytes it was not made for.

Two kinds of input. *Arbitrary bytes* and *valid files with bits flipped, cut or doubled* reach the decoders
of whole files: journal, segment, snapshot, witness. These must answer with what is intact and with the one
error that means damage, and must never yield a record that was not written.

Payloads (Append frames, the body of a snapshot) are only decoded after their checksum fitted, so rot never
reaches them; what a checksum can carry is what some release of ours wrote. Their decoders have no duty to
recognise nonsense as such. They are held to less: nonsense may raise, but only `PAYLOAD_ERRORS`, and must not
hang, kill the process or ask for memory out of proportion.
"""

import resource
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.storage.support import FS, append, columns, journal_files, new_journal, sync
from tests.support.appending import rows_of
from topics.codec.stored import StoredRows
from topics.core.config import TopicConfig
from topics.log.seal.snapshot_state import RunState, SnapshotState, TopicState
from topics.log.seal.snapshot_state import decode as decode_state
from topics.storage import snapshot
from topics.storage.columns import Columns
from topics.storage.fileheader import ForeignFile, checksum
from topics.storage.frame import FRAME_MAGIC_BYTES, HEADER_BYTES, Frame, Kind, decode_header, encode_header
from topics.storage.journal import decode_file_header, encode_file_header, file_name
from topics.storage.journal_reader import Damage, JournalReader
from topics.storage.segment import MAGIC as SEGMENT_MAGIC
from topics.storage.segment import TRAILER_BYTES, Segment, SegmentDamaged, SegmentWriter
from topics.storage.segment import file_name as segment_name
from topics.storage.witness import FILE_NAME as WITNESS_NAME
from topics.storage.witness import Witness

PAYLOAD_ERRORS = (ValueError, struct.error, TypeError, IndexError)
# Decoding a small file may not ask for more than this on top of what the process has.
MEMORY_BYTES = 256 * 1024 * 1024

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
long = settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Turns an allocation out of proportion into a MemoryError, which no test here accepts."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid file to which one to four things happened."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.integers(1, 80))
        what = draw(st.sampled_from(["flip", "zero", "cut", "drop", "double", "noise"]))
        if not data:
            break
        if what == "flip":
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "zero":
            data[at : at + size] = bytes(len(data[at : at + size]))
        elif what == "cut":
            del data[at:]
        elif what == "drop":
            del data[at : at + size]
        elif what == "double":
            data[at:at] = data[at : at + size]
        else:
            data[at : at + size] = draw(st.binary(min_size=1, max_size=size))
    return bytes(data)


# --- headers ------------------------------------------------------------------------------------------------


@quick
@given(st.binary(max_size=200), st.integers(0, 220))
def test_arbitrary_bytes_are_no_frame_header(data: bytes, at: int) -> None:
    assert decode_header(data, at) is None


@quick
@given(st.binary(min_size=HEADER_BYTES - 4, max_size=200))
def test_a_magic_alone_makes_no_frame_header(data: bytes) -> None:
    assert decode_header(FRAME_MAGIC_BYTES + data) is None


@quick
@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_no_file_header(data: bytes) -> None:
    assert decode_file_header(data) is None
    assert snapshot.decode(data) is None


# --- journal ------------------------------------------------------------------------------------------------


def _journal() -> tuple[dict[str, bytes], dict[tuple[int, bytes], int]]:
    """Two files with a few syncs between; the files, and every frame that was written with its position."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        journal = new_journal(directory)
        written = {}
        for seq in range(1, 9):
            payload = b"record %d " % seq * seq
            written[seq, payload] = append(journal, seq, payload)
            if seq in (3, 6):
                sync(journal)
            if seq == 5:
                journal.rotate()
        journal.close()
        return {path.name: path.read_bytes() for path in journal_files(directory)}, written


FILES, WRITTEN = _journal()
FIRST, SECOND = sorted(FILES)


def check_scan(files: dict[str, bytes], start: int, proven: int, *, same_places: bool = True) -> None:
    """Only written frames come back, in order; and a second scan finds what the first one left."""
    with tempfile.TemporaryDirectory() as name:
        for path, data in files.items():
            (Path(name) / path).write_bytes(data)
        with bounded_memory():
            reader = JournalReader(FS, name, start=start, proven=proven)
            items = list(reader.frames())
            again = list(JournalReader(FS, name, start=start, proven=proven).frames())
        seqs = []
        for item in items:
            assert item.position >= start
            if isinstance(item, Frame):
                position = WRITTEN[item.first_seq, bytes(item.payload)]
                assert position == item.position or not same_places
                seqs.append(item.first_seq)
            else:
                assert item.position < item.end
        if same_places:
            assert seqs == sorted(set(seqs))
        assert [describe(item) for item in items] == [describe(item) for item in again]
        assert reader.end == max((file.end for file in reader.files()), default=start)


def describe(item: Frame | Damage) -> tuple[object, ...]:
    if isinstance(item, Damage):
        return item.position, item.end
    return item.position, item.first_seq, bytes(item.payload)


POSITIONS = st.integers(0, max(WRITTEN.values()) + 500)


def _journal_damage(data: st.DataObject) -> None:
    # Bytes that were dropped or doubled move the frames behind them: they come back, elsewhere.
    first = data.draw(st.one_of(st.just(FILES[FIRST]), damaged(FILES[FIRST])))
    second = data.draw(damaged(FILES[SECOND]))
    moved = len(first) != len(FILES[FIRST]) or len(second) != len(FILES[SECOND])
    start = data.draw(st.sampled_from([0, *WRITTEN.values()]))
    try:
        check_scan({FIRST: first, SECOND: second}, start, data.draw(POSITIONS), same_places=not moved)
    except ForeignFile:
        assert first[:32] != FILES[FIRST][:32] or second[:32] != FILES[SECOND][:32]


@quick
@given(st.data())
def test_a_damaged_journal_yields_only_what_was_written(data: st.DataObject) -> None:
    _journal_damage(data)


@pytest.mark.slow
@long
@given(st.data())
def test_a_damaged_journal_yields_only_what_was_written_at_length(data: st.DataObject) -> None:
    _journal_damage(data)


@quick
@given(st.binary(max_size=2000), POSITIONS, POSITIONS)
@example(encode_file_header(0) + FRAME_MAGIC_BYTES * 500, 0, 10**6)
@example(
    encode_file_header(0) + encode_header(4, 0, 1, 1, 1, 1, 0, 2**32 - 1, position=0, synced=0) * 20, 0, 10**6
)
@example(
    encode_file_header(0)
    + encode_header(4, 0, 1, 1, 1, 1, checksum(b""), 0, position=2**64 - 1, synced=2**64 - 1),
    0,
    0,
)
def test_arbitrary_bytes_are_no_journal(data: bytes, start: int, proven: int) -> None:
    check_scan({file_name(0): data}, start, proven)


def test_looking_for_the_next_frame_takes_linear_time(tmp_path: Path) -> None:
    """Four megabytes of magics, each of which could begin a frame and none does."""
    (tmp_path / file_name(0)).write_bytes(encode_file_header(0) + FRAME_MAGIC_BYTES * 1_000_000)
    reader = JournalReader(FS, str(tmp_path), start=0, proven=10**9)
    assert list(reader.frames()) == [Damage(0, 4_000_000, None)]


# --- segment ------------------------------------------------------------------------------------------------

RUNS = [(1, columns(5, full=True)), (2, columns(3, base=40)), (3, columns(9, base=7, full=True))]


def _segment() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        writer = SegmentWriter(1)
        for topic_id, run in RUNS:
            writer.add(topic_id, run, np.arange(run.count, dtype=np.uint8) % 2)
        writer.write(FS, name, 1)
        return (Path(name) / segment_name(1)).read_bytes()


SEGMENT = _segment()


def read_segment(data: bytes, *, verify: bool) -> list[tuple[int, Columns]]:
    """Use everything a segment offers, as far as it is not damaged."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / segment_name(1)
        path.write_bytes(data)
        with bounded_memory():
            segment = Segment(FS, str(path))
            for entry in segment.entries:
                try:
                    if verify:
                        segment.verify(entry)
                    run = segment.columns(entry)
                    assert len(segment.flags(entry)) == run.count
                    for code in range(1, len(run.tags.names) + 1):
                        segment.tagged(entry, code)
                    found.append((entry.topic_id, run))
                except SegmentDamaged:
                    pass
            segment.close()
    return found


def _segment_damage(data: bytes) -> None:
    try:
        found = read_segment(data, verify=True)
    except (SegmentDamaged, ForeignFile):
        return
    originals = dict(RUNS)
    for topic_id, run in found:
        assert bytes(run.rows) == bytes(originals[topic_id].rows)
        assert run.ends.tolist() == originals[topic_id].ends.tolist()
        assert run.ts.tolist() == originals[topic_id].ts.tolist()


@quick
@given(damaged(SEGMENT))
def test_a_damaged_segment_yields_only_what_was_written(data: bytes) -> None:
    _segment_damage(data)


@pytest.mark.slow
@long
@given(damaged(SEGMENT))
def test_a_damaged_segment_yields_only_what_was_written_at_length(data: bytes) -> None:
    _segment_damage(data)


@quick
@given(st.binary(max_size=500))
def test_arbitrary_bytes_are_no_segment(data: bytes) -> None:
    with pytest.raises(SegmentDamaged):
        read_segment(data, verify=False)


NUMBERS = st.one_of(st.integers(0, 600), st.integers(-(2**63), 2**64 - 1))
PLACES = st.tuples(NUMBERS, NUMBERS, NUMBERS)
NAMES = st.sampled_from(
    ["rows", "ends", "data_lens", "ts", "meta_lens", "node_codes", "nodes", "tag_codes", "tags", "tag_order"]
)
ENTRIES = st.tuples(
    NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.dictionaries(NAMES, PLACES, max_size=10), NUMBERS
)


@quick
@given(st.one_of(st.binary(max_size=60), st.lists(ENTRIES, max_size=3).map(msgspec.msgpack.encode)))
def test_any_footer_under_a_valid_checksum_is_read_or_damaged(footer: bytes) -> None:
    """Not even verified: whatever a footer claims, there is one error and no view outside the file."""
    at = struct.unpack_from("<Q", SEGMENT, len(SEGMENT) - TRAILER_BYTES)[0]
    trailer = struct.pack("<QQQ8s", at, len(footer), checksum(footer), SEGMENT_MAGIC)
    try:
        read_segment(SEGMENT[:at] + footer + trailer, verify=False)
    except SegmentDamaged:
        pass


# --- snapshot and witness -----------------------------------------------------------------------------------

BODY = msgspec.msgpack.encode(
    SnapshotState(
        1,
        2,
        3,
        4,
        5,
        [
            TopicState(
                *(1, "a", TopicConfig(), 1, 9, 1, 1, 1, 1, 1, 1, 5, 6, 100),
                [RunState(1, 5, 1, 2, 3, 4, 5, 6, b"\1\0\0\0")],
                b"",
                [(1, 2, 4, False)],
                (b"", b"", b""),
                b"",
            )
        ],
        {"routers": [1, None, {"a": b"b"}]},
    )
)
SNAPSHOT = b"".join(snapshot.encode(BODY))


@quick
@given(damaged(SNAPSHOT))
def test_a_damaged_snapshot_is_none(data: bytes) -> None:
    assume(data != SNAPSHOT)
    with bounded_memory():
        assert snapshot.decode(data) is None


@quick
@given(st.binary(max_size=200))
def test_any_page_is_a_witness(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / WITNESS_NAME).write_bytes(data)
        witness = Witness(FS, name)
        assert not witness.previous.same_boot
        witness.begin(1, 2)
        witness.close(clean=True)
        again = Witness(FS, name)
        assert (again.previous.acked, again.previous.clock_ms, again.previous.clean) == (1, 2, True)
        again.close(clean=False)


# --- payloads, behind their checksum ------------------------------------------------------------------------


@quick
@given(st.one_of(st.binary(max_size=300), damaged(BODY)))
def test_a_snapshot_body_is_decoded_or_refused(body: bytes) -> None:
    with bounded_memory():
        try:
            decode_state(body)
        except (*PAYLOAD_ERRORS, RecursionError):
            pass


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=6)


@quick
@given(st.data())
def test_append_payloads_come_back(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers().map(lambda n: b"%d" % n), min_size=1, max_size=6))
    count = len(values)
    texts = st.one_of(
        st.none(), st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=count, max_size=count)
    )
    metas = [b"{}" if n else None for n in data.draw(st.lists(st.booleans(), min_size=count, max_size=count))]
    hops = data.draw(st.one_of(st.none(), st.binary(min_size=count, max_size=count)))
    rows = rows_of(values, 10, 20, metas=metas, nodes=data.draw(texts), tags=data.draw(texts), hops=hops)
    found = StoredRows.read(memoryview(rows.payload), count, rows.flags, 10, 20)
    assert (found.count, found.size, found.text, found.ends) == (
        count,
        rows.size,
        bytes(rows.text),
        rows.ends,
    )
    assert (found.data_lens, found.meta_lens) == (rows.data_lens, rows.meta_lens)
    assert (found.names, found.hops) == (rows.names, hops)


FULL_PAYLOAD = rows_of(
    [b"1", b'"two"', b"[3]"],
    1,
    5,
    metas=[None, b"{}", None],
    nodes=["n", None, "m"],
    tags=[None, "t", "t"],
    hops=b"\0\1\2",
).payload


@quick
@given(
    st.one_of(st.binary(max_size=200), damaged(FULL_PAYLOAD)),
    st.one_of(st.integers(0, 4), st.just(2**32 - 1)),
    st.integers(0, 15),
)
def test_nonsense_in_an_append_payload_only_raises(payload: bytes, count: int, flags: int) -> None:
    with bounded_memory():
        try:
            StoredRows.read(memoryview(payload), count, flags, 1, 5)
        except PAYLOAD_ERRORS:
            pass


def test_kinds_fit_their_byte() -> None:
    assert max(Kind) <= 255

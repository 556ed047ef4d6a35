"""Sealed segments: columns come back as they went in, flags flip in place, damage has one name."""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.storage.cold_tier import write_segment
from tests.storage.support import FS, columns
from tests.support.damage import flip
from tests.support.disk import FullDisk, HookedDisk, NotedDisk
from topics.storage.columns import Columns
from topics.storage.fileheader import FILE_HEADER_BYTES, checksum
from topics.storage.filesystem import Filesystem
from topics.storage.segment import (
    DEAD,
    LIVE,
    MAGIC,
    TRAILER_BYTES,
    Place,
    RunEntry,
    Segment,
    SegmentDamaged,
    SegmentWriter,
    file_name,
)

NUMBER = 7


def write(directory: Path, *runs: tuple[int, Columns, np.ndarray | None]) -> Path:
    writer = SegmentWriter(NUMBER)
    for topic_id, run, dead in runs:
        writer.add(topic_id, run, dead)
    writer.write(FS, str(directory), NUMBER)
    return directory / file_name(NUMBER)


def opened(path: Path) -> Segment:
    return Segment(FS, str(path))


def assert_same(found: Columns, expected: Columns) -> None:
    assert (found.base, found.count) == (expected.base, expected.count)
    assert bytes(found.rows) == bytes(expected.rows)
    for name in ("ends", "data_lens", "ts", "meta_lens", "hops"):
        wanted = getattr(expected, name)
        if wanted is None:
            assert getattr(found, name) is None
        else:
            assert getattr(found, name).tolist() == wanted.tolist()
            assert getattr(found, name).dtype == wanted.dtype
    # Tags are numbered anew when they are written; the names say the same.
    everything = np.arange(expected.count)
    assert [column.at(everything) for column in found.names] == [
        column.at(everything) for column in expected.names
    ]


# --- round trips --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("count", [1, 4, 1000])
def test_round_trip(tmp_path: Path, count: int, full: bool) -> None:
    run = columns(count, base=5, full=full)
    segment = opened(write(tmp_path, (3, run, None)))
    entry = segment.entry(3, 5)
    assert (entry.count, entry.first_ts, entry.last_ts) == (count, 100, 99 + count)
    segment.verify(entry)
    assert_same(segment.columns(entry), run)
    assert segment.flags(entry).tolist() == [LIVE] * count
    segment.close()


def test_packed_runs_of_several_topics(tmp_path: Path) -> None:
    runs = [(1, columns(3)), (1, columns(5, base=4, full=True)), (2, columns(1, full=True)), (9, columns(2))]
    dead = np.array([0, 1, 0, 0, 1], np.uint8)
    path = write(tmp_path, *((topic, run, dead if run.count == 5 else None) for topic, run in runs))
    segment = opened(path)
    assert [(e.topic_id, e.base, e.count) for e in segment.entries] == [
        (1, 1, 3),
        (1, 4, 5),
        (2, 1, 1),
        (9, 1, 2),
    ]
    for topic, run in runs:
        entry = segment.entry(topic, run.base)
        segment.verify(entry)
        assert_same(segment.columns(entry), run)
    assert segment.flags(segment.entry(1, 4)).tolist() == [LIVE, DEAD, LIVE, LIVE, DEAD]
    with pytest.raises(SegmentDamaged, match="no run of topic 3 at 1"):
        segment.entry(3, 1)
    segment.close()


def test_tags_are_sorted_and_lead_to_their_records(tmp_path: Path) -> None:
    run = columns(7, full=True)  # tag codes 1 2 0 1 2 0 1
    segment = opened(write(tmp_path, (1, run, None)))
    entry = segment.entries[0]
    assert segment.columns(entry).tags.names == ["ant", "unused", "zoo"]
    assert segment.tagged(entry, 1).tolist() == [1, 4]
    assert segment.tagged(entry, 2).tolist() == []
    assert segment.tagged(entry, 3).tolist() == [0, 3, 6]
    for code in (0, 4):
        with pytest.raises(SegmentDamaged, match="no tag number"):
            segment.tagged(entry, code)
    segment.close()


def test_it_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    disk = NotedDisk()
    writer = SegmentWriter(1)
    writer.add(1, columns(2), None)
    writer.write(disk, str(tmp_path), 1)
    # The directory is synced once for all files of a pass, by whoever writes them.
    assert [note[0] for note in disk.notes] == ["create", "write", "sync", "rename"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(1)
    writer.add(1, columns(2), None)
    with pytest.raises(OSError, match="No space"):
        writer.write(FullDisk(), str(tmp_path), 1)
    assert FS.list(str(tmp_path)) == []


# --- flags --------------------------------------------------------------------------------------------------


def test_flips_change_one_byte_each_and_no_checksum(tmp_path: Path) -> None:
    path = write(tmp_path, (1, columns(6, full=True), None), (2, columns(3), None))
    before = path.read_bytes()
    segment = opened(path)
    entry = segment.entry(1, 1)
    segment.flip(entry, np.array([4, 1], np.uint32))
    segment.sync()
    assert segment.flags(entry).tolist() == [LIVE, DEAD, LIVE, LIVE, DEAD, LIVE]
    segment.flip(entry, np.array([0], np.uint32))
    segment.flip(entry, np.array([0, 5], np.uint32))
    segment.verify(entry)
    segment.close()
    again = opened(path)
    assert again.flags(again.entry(1, 1)).tolist() == [DEAD, DEAD, LIVE, LIVE, DEAD, DEAD]
    assert again.flags(again.entry(2, 1)).tolist() == [LIVE] * 3
    after = path.read_bytes()
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    assert changed == [entry.flags_at + i for i in (0, 1, 4, 5)]
    again.close()


def test_a_wrong_index_does_not_reach_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path, (1, columns(2), None), (2, columns(2), None))
    before = path.read_bytes()
    segment = opened(path)
    with pytest.raises(IndexError):
        segment.flip(segment.entries[0], np.array([0, 2], np.uint32))
    assert path.read_bytes() == before
    segment.close()


# --- damage -------------------------------------------------------------------------------------------------


def use(segment: Segment, entry: RunEntry) -> None:
    """Everything a reader asks of a run."""
    found = segment.columns(entry)
    segment.flags(entry)
    for code in range(1, len(found.tags.names) + 1):
        segment.tagged(entry, code)


def read_everything(path: Path) -> None:
    segment = opened(path)
    try:
        for entry in segment.entries:
            segment.verify(entry)
            use(segment, entry)
    finally:
        segment.close()


def test_every_byte_but_flags_and_padding_is_covered(tmp_path: Path) -> None:
    path = write(tmp_path, (1, columns(3, full=True), None), (2, columns(2), None))
    data = path.read_bytes()
    segment = opened(path)
    used = {*range(FILE_HEADER_BYTES)}
    for entry in segment.entries:
        for place in entry.columns.values():
            used.update(range(place.offset, place.offset + place.length))
    footer_at = struct.unpack_from("<Q", data, len(data) - TRAILER_BYTES)[0]
    used.update(range(footer_at, len(data)))
    segment.close()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        if at in used:
            with pytest.raises(SegmentDamaged):
                read_everything(path)
        else:
            read_everything(path)


def test_only_the_columns_that_are_named_are_verified(tmp_path: Path) -> None:
    path = write(tmp_path, (1, columns(3, full=True), None))
    with opened(path) as segment:
        entry = segment.entries[0]
        place = entry.columns["ts"]
        segment.verify(entry)
        begin, end = segment.span(entry)
    assert begin == min(place.offset for place in entry.columns.values())
    assert end == entry.flags_at + entry.count
    flip(path, place.offset)
    with opened(path) as segment:
        entry = segment.entries[0]
        segment.verify(entry, ("tags", "data_lens"))
        for names in ((), ("ts",)):
            with pytest.raises(SegmentDamaged):
                segment.verify(entry, names)


def with_footer(path: Path, footer: bytes) -> None:
    """Put another footer on a file, checksum and all."""
    data = path.read_bytes()
    at = struct.unpack_from("<Q", data, len(data) - TRAILER_BYTES)[0]
    trailer = struct.pack("<QQQ8s", at, len(footer), checksum(footer), MAGIC)
    path.write_bytes(data[:at] + footer + trailer)


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\xc1",
        b"\x93\x01\x02\x03",
        msgspec.msgpack.encode([[1, 2, 3]]),
        msgspec.msgpack.encode([[1, 1, 1, 0, 0, {"rows": [-1, 5, 0]}, 0]]),
        msgspec.msgpack.encode([[1, 1, -1, 0, 0, {}, 0]]),
        # A key that is not UTF-8.
        b"\x91\x97\x01\x01\x01\x00\x00\x81\xa1\xff\x93\x00\x00\x00\x00",
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_a_footer_that_makes_no_sense(tmp_path: Path, footer: bytes) -> None:
    path = write(tmp_path, (1, columns(3), None))
    with_footer(path, footer)
    with pytest.raises(SegmentDamaged, match="unreadable footer"):
        opened(path)


def _drop(name: str) -> Callable[[RunEntry], None]:
    return lambda entry: entry.columns.pop(name) and None


def _shorten(name: str, by: int) -> Callable[[RunEntry], None]:
    def change(entry: RunEntry) -> None:
        entry.columns[name].length -= by

    return change


def _outside(name: str) -> Callable[[RunEntry], None]:
    def change(entry: RunEntry) -> None:
        entry.columns[name] = Place(2**63, 2**63, 0)

    return change


def _swap(name: str, other: str) -> Callable[[RunEntry], None]:
    def change(entry: RunEntry) -> None:
        entry.columns[name] = entry.columns[other]

    return change


def _flags_outside(entry: RunEntry) -> None:
    entry.flags_at = 2**62


@pytest.mark.parametrize(
    "change",
    [
        *(_drop(name) for name in ("rows", "ends", "data_lens", "ts", "tag_order", "tag_starts")),
        *(_shorten(name, by) for name in ("ends", "ts", "node_codes", "tag_order") for by in (1, 4)),
        _shorten("tag_starts", 4),
        *(_outside(name) for name in ("rows", "ends", "nodes", "tag_starts")),
        _swap("nodes", "rows"),
        _swap("tags", "ends"),
        _flags_outside,
    ],
)
def test_a_footer_that_does_not_fit_the_file(tmp_path: Path, change: Callable[[RunEntry], None]) -> None:
    """A valid checksum over wrong places: still one kind of error, and no view outside the file."""
    path = write(tmp_path, (1, columns(3, full=True), None))
    segment = opened(path)
    entry = segment.entries[0]
    segment.close()
    change(entry)
    with_footer(path, msgspec.msgpack.encode([entry]))
    with pytest.raises(SegmentDamaged):
        use_unverified(path)


def use_unverified(path: Path) -> None:
    segment = opened(path)
    try:
        use(segment, segment.entries[0])
    finally:
        segment.close()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_file_that_may_only_be_read_is_read(tmp_path: Path, code: int) -> None:
    def refuse(operation: str, path: Path) -> None:
        if operation == "open":
            raise OSError(code, os.strerror(code), path)

    write_segment(tmp_path, 1)
    path = str(tmp_path / file_name(1))
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            Segment(HookedDisk(refuse), path)
    else:
        assert Segment(HookedDisk(refuse), path).entries == Segment(Filesystem(), path).entries

"""Sealed segments: runs of records that will never grow again.

    header   magic 8 | format u32 | mark of the owner u32 | number u64 | checksum u64
    columns  of each run, every one aligned to 8 bytes
    footer   MessagePack list of runs: topic, first seq, count, ts range, where each column lies, checksums
    trailer  footer offset u64 | footer length u64 | footer checksum u64 | magic 8

A file holds one full run of a topic, or a few of them if the topic is written in haste, or many small runs of
many topics: files follow bytes, not topics. The only byte that ever changes is a record's delete flag: DEAD
means deleted, every other value means live. A single byte cannot be torn, but it can rot, and no checksum
covers the flags: who reads them compares how many are set with how many should be.
"""

import errno
import os
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.core import FIELDS, NamedField
from topics.storage import fileheader
from topics.storage.columns import U8, U32, CodedNames, Columns, total_at
from topics.storage.fileheader import FILE_HEADER_BYTES, checksum
from topics.storage.filesystem import Buffer, File, Filesystem, replace_file, unload_pages

MAGIC = b"TOPICSSG"
SUFFIX = ".segment"
DEAD = 0xDD
LIVE = 0x00
_TRAILER = struct.Struct("<QQQ8s")
TRAILER_BYTES = _TRAILER.size
# Columns start at multiples of this, so that they can be used where they lie in the mapped file.
ALIGNMENT = 8
Unsigned: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class SegmentDamaged(Exception):
    """The file is not what was written: its records have to be announced as lost."""


class Place(msgspec.Struct, array_like=True, gc=False):
    offset: Unsigned
    length: Unsigned
    checksum: Unsigned


class RunEntry(msgspec.Struct, array_like=True, gc=False):
    """Footer line of one run."""

    topic_id: Unsigned
    base: Unsigned
    count: Unsigned
    first_ts: int
    last_ts: int
    columns: dict[str, Place]
    flags_at: Unsigned


_footer_decoder = msgspec.msgpack.Decoder(list[RunEntry])
_names_decoder = msgspec.msgpack.Decoder(list[str])
_DTYPES: dict[str, type[np.generic]] = {
    "ends": np.uint32,
    "data_lens": np.uint32,
    "meta_lens": np.uint32,
    "ts": np.int64,
    "hops": np.uint8,
    **{f"{field.name}_{part}": np.uint32 for field in FIELDS for part in ("codes", "order", "starts")},
}


def file_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


class SegmentWriter:
    """Collects runs and writes them as one file. Safe to use on a thread: it only sees frozen runs."""

    def __init__(self, number: int, mark: int = 0) -> None:
        self._parts: list[Buffer] = [fileheader.encode(MAGIC, number, mark=mark)]
        self._size = FILE_HEADER_BYTES
        self.entries: list[RunEntry] = []

    @property
    def size(self) -> int:
        """Bytes of the columns so far."""
        return self._size

    def _put(self, data: Buffer) -> Place:
        place = Place(self._size, len(data), checksum(data))
        padding = -len(data) % ALIGNMENT
        self._parts.append(data)
        if padding:
            self._parts.append(b"\0" * padding)
        self._size += len(data) + padding
        return place

    def add(self, topic_id: int, columns: Columns, dead: U8 | None) -> RunEntry:
        places = {
            "rows": self._put(columns.rows),
            "ends": self._put(columns.ends.tobytes()),
            "data_lens": self._put(columns.data_lens.tobytes()),
            "ts": self._put(columns.ts.tobytes()),
        }
        if columns.meta_lens is not None:
            places["meta_lens"] = self._put(columns.meta_lens.tobytes())
        if columns.hops is not None:
            places["hops"] = self._put(columns.hops.tobytes())
        for field, (codes, names) in zip(FIELDS, columns.names, strict=True):
            if codes is None:
                continue
            if field.is_indexed:
                codes, names = self._put_index(field, codes, names, places)
            places[f"{field.name}_codes"] = self._put(codes.tobytes())
            places[f"{field.name}s"] = self._put(msgspec.msgpack.encode(names))
        flags = np.zeros(columns.count, np.uint8)
        if dead is not None:
            flags[dead != 0] = DEAD
        entry = RunEntry(
            topic_id,
            columns.base,
            columns.count,
            int(columns.ts[0]),
            int(columns.ts[-1]),
            places,
            self._put(flags.tobytes()).offset,
        )
        self.entries.append(entry)
        return entry

    def _put_index(
        self, field: NamedField, codes: U32, names: list[str], places: dict[str, Place]
    ) -> tuple[U32, list[str]]:
        """For each name, the indexes of its records: a lookup reads only what it matches.

        Returns the codes and the names, which are sorted.
        """
        order = sorted(range(len(names)), key=lambda i: names[i].encode())
        recode = np.zeros(len(order) + 1, np.uint32)
        recode[np.array(order, np.int64) + 1] = np.arange(1, len(order) + 1, dtype=np.uint32)
        codes = recode[codes]
        by_code = np.argsort(codes, kind="stable").astype(np.uint32)
        starts = np.searchsorted(codes[by_code], np.arange(1, len(order) + 2)).astype(np.uint32)
        places[f"{field.name}_order"] = self._put(by_code.tobytes())
        places[f"{field.name}_starts"] = self._put(starts.tobytes())
        return codes, [names[i] for i in order]

    def write(self, fs: Filesystem, directory: str, number: int) -> None:
        """Temporary file, sync, rename. The caller syncs the directory once for all files of a pass."""
        footer = msgspec.msgpack.encode(self.entries)
        trailer = _TRAILER.pack(self._size, len(footer), checksum(footer), MAGIC)
        replace_file(fs, os.path.join(directory, file_name(number)), [*self._parts, footer, trailer])


def _open(fs: Filesystem, path: str) -> File:
    try:
        return fs.open(path)
    except OSError as error:
        # A file system that had to be made read-only still has the records.
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return fs.open_to_read(path)


class Segment:
    """An open segment file. Columns are views into the mapping: nothing is read before it is used.

    `verify` a run before using its columns: it is what notices rot. The other methods only make sure that a
    file that is not what the footer says ends in `SegmentDamaged` and in nothing else.
    """

    def __init__(self, fs: Filesystem, path: str) -> None:
        self._file: File = _open(fs, path)
        self.path = path
        try:
            self._view = self._file.map()
            self.entries = self._read_footer()
        except BaseException:
            self._file.close()
            raise
        self._by_base = {(e.topic_id, e.base): e for e in self.entries}

    @property
    def size(self) -> int:
        return len(self._view)

    @property
    def number(self) -> int:
        """The number in its header."""
        return fileheader.decode(self._view, MAGIC) or 0

    @property
    def digest(self) -> str:
        """Names the content, flags aside: the footer holds the checksums of everything else."""
        _, length, digest, _ = _TRAILER.unpack_from(self._view, len(self._view) - TRAILER_BYTES)
        return f"{checksum(struct.pack('<QQQ', len(self._view), length, digest)):016x}"

    def _damaged(self, what: str) -> SegmentDamaged:
        return SegmentDamaged(f"{self.path}: {what}")

    def _read_footer(self) -> list[RunEntry]:
        view = self._view
        if len(view) < FILE_HEADER_BYTES + TRAILER_BYTES:
            raise self._damaged("too short")
        if fileheader.decode(view, MAGIC) is None:
            raise self._damaged("bad header")
        offset, length, digest, magic = _TRAILER.unpack_from(view, len(view) - TRAILER_BYTES)
        footer = bytes(view[offset : offset + length]) if offset + length <= len(view) else b""
        if magic != MAGIC or len(footer) != length or checksum(footer) != digest:
            raise self._damaged("bad footer")
        try:
            return _footer_decoder.decode(footer)
        except ValueError as error:  # what msgspec raises, and invalid UTF-8
            raise self._damaged("unreadable footer") from error

    def entry(self, topic_id: int, base: int) -> RunEntry:
        entry = self._by_base.get((topic_id, base))
        if entry is None:
            raise self._damaged(f"no run of topic {topic_id} at {base}")
        return entry

    def _bytes(self, offset: int, length: int) -> memoryview:
        if offset + length > len(self._view):
            raise self._damaged("column outside the file")
        return self._view[offset : offset + length]

    def verify(self, entry: RunEntry, names: Sequence[str] = ()) -> None:
        """Of all columns, or of those named as far as there are such."""
        for name, place in entry.columns.items():
            if names and name not in names:
                continue
            if checksum(self._bytes(place.offset, place.length)) != place.checksum:
                raise self._damaged(f"column {name} of run {entry.base} is damaged")

    def _column(self, entry: RunEntry, name: str) -> memoryview:
        place = entry.columns.get(name)
        if place is None:
            raise self._damaged(f"run {entry.base} has no column {name}")
        return self._bytes(place.offset, place.length)

    def _array(self, entry: RunEntry, name: str) -> NDArray[Any]:
        data = self._column(entry, name)
        dtype = np.dtype(_DTYPES[name])
        if len(data) % dtype.itemsize:
            raise self._damaged(f"column {name} of run {entry.base} has a bad length")
        return np.frombuffer(data, dtype)

    def _per_record(self, entry: RunEntry, name: str) -> NDArray[Any]:
        values = self._array(entry, name)
        if len(values) != entry.count:
            raise self._damaged(f"column {name} of run {entry.base} has {len(values)} values")
        return values

    def _if_present(self, entry: RunEntry, name: str) -> NDArray[Any] | None:
        return self._per_record(entry, name) if name in entry.columns else None

    def _names(self, entry: RunEntry, name: str) -> list[str]:
        if name not in entry.columns:
            return []
        try:
            return _names_decoder.decode(self._column(entry, name))
        except ValueError as error:
            raise self._damaged(f"column {name} of run {entry.base} is unreadable") from error

    def columns(self, entry: RunEntry) -> Columns:
        return Columns(
            entry.base,
            entry.count,
            self._column(entry, "rows"),
            self._per_record(entry, "ends"),
            self._per_record(entry, "data_lens"),
            self._per_record(entry, "ts"),
            meta_lens=self._if_present(entry, "meta_lens"),
            names=tuple(
                CodedNames(
                    self._if_present(entry, f"{field.name}_codes"), self._names(entry, f"{field.name}s")
                )
                for field in FIELDS
            ),
            hops=self._if_present(entry, "hops"),
        )

    def tags(self, entry: RunEntry) -> list[str]:
        """The run's tags, ascending; the first has number 1."""
        return self._names(entry, "tags")

    def tagged(self, entry: RunEntry, first: int, last: int | None = None) -> U32:
        """Indexes of the records with tag number `first`, ascending, and so on for each tag up to `last`."""
        order, starts = self._per_record(entry, "tag_order"), self._array(entry, "tag_starts")
        last = first if last is None else last
        if not 0 < first <= last < len(starts):
            raise self._damaged(f"run {entry.base} has no tag number {first} or {last}")
        return order[int(starts[first - 1]) : int(starts[last])]

    def size_of(self, entry: RunEntry, indexes: U32) -> int:
        """What these records count for."""
        data_lens, meta_lens = self._per_record(entry, "data_lens"), self._if_present(entry, "meta_lens")
        return total_at(indexes, data_lens, meta_lens)

    def flags(self, entry: RunEntry) -> U8:
        return np.frombuffer(self._bytes(entry.flags_at, entry.count), np.uint8)

    def flip(self, entry: RunEntry, indexes: U32) -> None:
        """Mark records deleted, in place. Only whole stretches between first and last flip are written."""
        if not len(indexes):
            return
        first, last = int(indexes.min()), int(indexes.max())
        if last >= entry.count:
            raise IndexError(f"run {entry.base} has no record {last}")  # other columns lie there
        stretch = np.frombuffer(self._file.read(last - first + 1, entry.flags_at + first), np.uint8).copy()
        stretch[indexes.astype(np.int64) - first] = DEAD
        self._file.write([stretch.tobytes()], entry.flags_at + first)

    def span(self, entry: RunEntry) -> tuple[int, int]:
        """Where the run's columns lie, first byte and one past the last."""
        offsets = [place.offset for place in entry.columns.values()]
        return min(offsets, default=entry.flags_at), min(entry.flags_at + entry.count, self.size)

    def unload(self, entry: RunEntry) -> None:
        """The run is not read for a while. Views of it stay good."""
        unload_pages(self._view, *self.span(entry))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def renumber(fs: Filesystem, directory: str, number: int, offset: int) -> None:
    """Add to the topic ids of a segment, in place: for a directory that is not in use yet."""
    path = os.path.join(directory, file_name(number))
    with Segment(fs, path) as segment, fs.open(path) as file:
        at, _, _, _ = _TRAILER.unpack(file.read(TRAILER_BYTES, file.size() - TRAILER_BYTES))
        for entry in segment.entries:
            entry.topic_id += offset
        footer = msgspec.msgpack.encode(segment.entries)
        file.write([footer, _TRAILER.pack(at, len(footer), checksum(footer), MAGIC)], at)
        file.truncate(at + len(footer) + TRAILER_BYTES)
        file.sync()

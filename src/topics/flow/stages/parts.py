"""Rows of stages: checked when a part comes, and written to their topics when all parts are committed.

A spooled part is an Arrow stream (topic, node, tag, data, meta; checked and compact). The metadata of its
schema holds what the commit wants to know besides the rows. Imports pyarrow: import this module late.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from topics.codec import Write
from topics.core import FIELDS, ApiError
from topics.flow.large_appends import LARGE_RECORDS
from topics.flow.stages.spool import PartMissing, SpoolFile, digest_of, read_spooled, write_spooled
from topics.log.write.arrow_batch import (
    Cells,
    check_cells,
    piece_bounds,
    read_stream,
    text_column,
    write_of,
)
from topics.storage import Filesystem

DIGEST_MODULUS = 1 << 64
# Rows that are hashed at a time: other threads get their turn in between.
_DIGEST_ROWS = 4096
_ABOUT_KEY = b"topics"
_NAMES = [field.name for field in reversed(FIELDS)]
_COLUMNS = ("topic", *_NAMES, "data", "meta")
_SCHEMA = pa.schema([(name, pa.string()) for name in _COLUMNS])


class About(msgspec.Struct, gc=False):
    """`digest` does not depend on the order of the rows, nor on how they are spread over parts."""

    count: int = 0
    bytes: int = 0
    digest: int = 0
    # None stands for rows that name no topic.
    topics: list[str | None] = msgspec.field(default_factory=list)


@dataclass(slots=True)
class Part:
    about: About
    batches: list[pa.RecordBatch]


_about = msgspec.json.Decoder(About)


def write_part(
    fs: Filesystem,
    path: str,
    body: bytes,
    *,
    max_bytes: int,
    default_topic: str | None,
    check_topic: Callable[[str], None],
) -> About:
    """Check the rows of a part and keep them, in the place of what was there before."""
    about = About()
    batches = []
    for batch in read_stream(body, max_bytes):
        rows = _normalised(batch, default_topic)
        about.count += rows.num_rows
        about.bytes += rows.nbytes
        about.digest = (about.digest + _digest(rows)) % DIGEST_MODULUS
        about.topics += [t for t in rows.column("topic").unique().to_pylist() if t not in about.topics]
        batches.append(rows)
    for topic in about.topics:
        if topic is not None:
            check_topic(topic)
    schema = _SCHEMA.with_metadata({_ABOUT_KEY: msgspec.json.encode(about)})

    def write(spool: SpoolFile) -> None:
        with pa.PythonFile(spool, "w") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for rows in batches:
                writer.write_batch(rows)

    write_spooled(fs, path, write)
    return about


def read_part(fs: Filesystem, path: str) -> Part:
    reader = pa.ipc.open_stream(pa.py_buffer(read_spooled(fs, path)))
    return Part(_about.decode(reader.schema.metadata[_ABOUT_KEY]), list(reader))


def read_parts(
    fs: Filesystem, paths: list[str], default_topic: str | None, max_bytes: int, large_bytes: int
) -> "Parts":
    """All of them; raises before more is read than one commit may hold, or when one is missing or damaged.

    Rows of more than `large_bytes` are not kept in memory: they are read again when they are wanted.
    """
    parts = Parts(fs, paths, default_topic)
    for path in paths:
        parts.add(read_part(fs, path), large_bytes)
        if parts.bytes > max_bytes:
            raise ApiError("payload_too_large", f"one commit takes at most {max_bytes} bytes")
    return parts


def read_digests(fs: Filesystem, paths: list[str]) -> list[int | None]:
    """Of the rows of each part, in the order of their files; None for one that is missing."""
    return [_digest_of_part(fs, path) for path in sorted(paths)]


def _digest_of_part(fs: Filesystem, path: str) -> int | None:
    try:
        return read_part(fs, path).about.digest
    except PartMissing:
        return None


class Parts:
    """All parts of a commit. `default_topic` is where rows go that name none."""

    def __init__(self, fs: Filesystem, paths: list[str], default_topic: str | None) -> None:
        self._fs = fs
        self._paths = paths
        self._default_topic = default_topic
        # Unless they are too large to be kept; how many rows each had, and their digest, is.
        self._kept: list[Part] | None = []
        self._counted: list[tuple[int, int]] = []
        self._digest = self.count = self.bytes = 0
        # What each topic gets: records, and bytes of their data and meta. None stands for rows without one.
        self.amounts: dict[str | None, tuple[int, int]] = {}

    @property
    def is_large(self) -> bool:
        return self._kept is None

    def add(self, part: Part, large_bytes: int) -> None:
        about = part.about
        self._counted.append((about.count, about.digest))
        self.count += about.count
        self.bytes += about.bytes
        self._digest += about.digest
        for batch in filter(len, part.batches):
            self._count(batch)
        if self.bytes > large_bytes or self.count > LARGE_RECORDS:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(part)

    def _count(self, batch: pa.RecordBatch) -> None:
        names, codes = _topics_of(batch, self._default_topic)
        sizes = pc.add(
            pc.binary_length(batch.column("data")), pc.binary_length(batch.column("meta")).fill_null(0)
        )
        counts = np.bincount(codes, minlength=len(names)).tolist()
        totals = np.bincount(codes, weights=sizes.to_numpy(), minlength=len(names)).tolist()
        for name, count, size in zip(names, counts, totals, strict=True):
            count_before, size_before = self.amounts.get(name, (0, 0))
            self.amounts[name] = count_before + count, size_before + int(size)

    @property
    def digest(self) -> int:
        """Where rows without a topic go is part of what they are."""
        digest = self._digest
        if self._default_topic is not None:
            digest += int(digest_of(self._default_topic)[:16], 16)
        return digest % DIGEST_MODULUS

    @property
    def digests(self) -> list[int]:
        """Of the rows of each part, in the order of their files."""
        return [digest for _, (_, digest) in sorted(zip(self._paths, self._counted, strict=True))]

    def by_topic(self) -> dict[str, list[Write]]:
        """All rows, in order, as they will be written."""
        found: dict[str, list[Write]] = {}
        for batch in self._batches():
            for topic, rows in _split(batch, self._default_topic):
                found.setdefault(topic, []).append(_as_written(rows))
        return found

    def pieces(self) -> Iterator[tuple[str, Write]]:
        """The same, a little at a time."""
        for batch in self._batches():
            for start, stop in piece_bounds(batch.column("data")):
                for topic, rows in _split(batch.slice(start, stop - start), self._default_topic):
                    yield topic, _as_written(rows)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """They were checked when they were spooled, and all of them name a topic."""
        parts = map(self._read_again, self._paths, self._counted) if self._kept is None else self._kept
        for part in parts:
            yield from filter(len, part.batches)

    def _read_again(self, path: str, counted: tuple[int, int]) -> Part:
        """Seqs are given out for the rows that were counted, not for those of a part in its place."""
        try:
            part = read_part(self._fs, path)
        except PartMissing:
            part = None
        if part is None or (part.about.count, part.about.digest) != counted:
            raise ApiError("throttled", "a part was dropped or sent again meanwhile; commit again")
        return part


def _as_written(rows: pa.RecordBatch) -> Write:
    metas, *names = (_unless_empty(rows.column(name)) for name in ("meta", *reversed(_NAMES)))
    return write_of(Cells(rows.column("data"), metas, names))


def _topics_of(batch: pa.RecordBatch, default_topic: str | None) -> tuple[list[str | None], np.ndarray]:
    """The topics that rows of a batch name, and which of them each names."""
    topics = batch.column("topic")
    if default_topic is not None:
        topics = topics.fill_null(pa.scalar(default_topic, pa.string()))
    encoded = topics.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _split(batch: pa.RecordBatch, default_topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    names, codes = _topics_of(batch, default_topic)
    if len(names) == 1:
        ordered, bounds = batch, [0, len(batch)]
    else:
        order = np.argsort(codes, kind="stable")
        ordered = batch.take(pa.array(order, pa.int64()))
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
    for code, name in enumerate(names):
        assert name is not None
        yield name, ordered.slice(bounds[code], bounds[code + 1] - bounds[code])


def _unless_empty(column: pa.Array) -> pa.Array | None:
    return None if column.null_count == len(column) else column


def _normalised(batch: pa.RecordBatch, default_topic: str | None) -> pa.RecordBatch:
    """The rows as they will be written, each with its topic as far as it is known."""
    cells = check_cells(batch)
    topics = text_column(batch, "topic")
    missing = pa.nulls(batch.num_rows, pa.string())
    if topics is None:
        topics = missing
    if default_topic is not None:
        topics = topics.fill_null(pa.scalar(default_topic, pa.string()))
    columns = (topics, *reversed(cells.names), cells.data, cells.metas)
    return pa.RecordBatch.from_arrays([missing if c is None else c for c in columns], schema=_SCHEMA)


def _digest(rows: pa.RecordBatch) -> int:
    """The sum of a hash of each row. Fields are framed by bytes that no text contains."""
    fields = [column.cast(pa.binary()) for column in rows.columns]
    joined = pc.binary_join_element_wise(
        *fields, pa.scalar(b"\xfe", pa.binary()), null_handling="replace", null_replacement=b"\xff"
    )
    digest = 0
    for start in range(0, len(joined), _DIGEST_ROWS):
        digest += sum(map(xxh3_64_intdigest, joined.slice(start, _DIGEST_ROWS).to_pylist()))
    return digest

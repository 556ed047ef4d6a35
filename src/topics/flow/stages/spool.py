"""Parts of stages, spooled to files that are not read before the commit.

    <stage>-<part>.part:  Arrow stream (topic, node, tag, data, meta; checked and compact) | checksum u64

Names come from clients, so file names are digests of them. The schema's metadata holds what the commit wants
to know about a part besides its rows. Imports pyarrow: import this module late.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from secrets import token_hex

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from topics.log.write.arrow_batch import Cells, ColumnBatch, check_cells, read_stream, text_column
from topics.storage.checksum import checksum
from topics.storage.filesystem import TEMPORARY, Filesystem
from topics.values.errors import ApiError

SUFFIX = ".part"
DIGEST_MODULUS = 1 << 64
_CHECKSUM = struct.Struct("<Q")
_ABOUT_KEY = b"topics"
_SCHEMA = pa.schema([(name, pa.string()) for name in ("topic", "node", "tag", "data", "meta")])


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


class PartMissing(Exception):
    """There is no such part (any more)."""


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def part_path(directory: str, stage: str, part: str) -> str:
    return os.path.join(directory, f"{digest_of(stage)}-{digest_of(part)}{SUFFIX}")


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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA.with_metadata({_ABOUT_KEY: msgspec.json.encode(about)})) as writer:
        for rows in batches:
            writer.write_batch(rows)
    content = memoryview(sink.getvalue())
    _spool(fs, path, [content, _CHECKSUM.pack(checksum(content))])
    return about


def _spool(fs: Filesystem, path: str, content: list[bytes | memoryview]) -> None:
    """Whole or not there. Not synced: the commit journals the rows again, and checks them before that."""
    # A name of its own: two writers may send the same part at the same time.
    temporary = f"{path}.{token_hex(4)}{TEMPORARY}"
    file = fs.create(temporary)
    try:
        file.write(content, 0)
    except OSError:
        # A full disk stays full as long as the half-written file lies around.
        fs.remove(temporary)
        raise
    finally:
        file.close()
    # Not there any more: the stage was dropped in the meantime, and this part with it.
    with contextlib.suppress(FileNotFoundError):
        fs.rename(temporary, path)


def read_part(fs: Filesystem, path: str) -> Part:
    try:
        file = fs.open(path)
    except OSError:
        raise PartMissing from None
    try:
        whole = memoryview(file.read(file.size(), 0))
    finally:
        file.close()
    if not is_intact(whole):
        raise ApiError("internal", "a part was damaged on disk; send it again")
    reader = pa.ipc.open_stream(pa.py_buffer(whole[: -_CHECKSUM.size]))
    return Part(_about.decode(reader.schema.metadata[_ABOUT_KEY]), list(reader))


def is_intact(whole: bytes | memoryview) -> bool:
    """Whether the content of a file is what was spooled."""
    return whole[-_CHECKSUM.size :] == _CHECKSUM.pack(checksum(whole[: -_CHECKSUM.size]))


def batches_by_topic(parts: list[Part], default_topic: str | None) -> dict[str | None, list[ColumnBatch]]:
    """All rows, in order, as they will be written to each topic. They were checked when they were spooled."""
    found: dict[str | None, list[ColumnBatch]] = {}
    for part in parts:
        for batch in filter(len, part.batches):
            for topic, rows in _split(batch, default_topic):
                data, metas, nodes, tags = (rows.column(name) for name in ("data", "meta", "node", "tag"))
                cells = Cells(data, _unless_empty(metas), _unless_empty(nodes), _unless_empty(tags))
                found.setdefault(topic, []).append(ColumnBatch(cells))
    return found


def _split(batch: pa.RecordBatch, default_topic: str | None) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    topics = batch.column("topic")
    if default_topic is not None:
        topics = topics.fill_null(pa.scalar(default_topic, pa.string()))
    encoded = topics.dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = batch.take(pa.array(order, pa.int64()))
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
    for code, name in enumerate(names):
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
    columns = (topics, cells.nodes, cells.tags, cells.data, cells.metas)
    return pa.RecordBatch.from_arrays([missing if c is None else c for c in columns], schema=_SCHEMA)


def _digest(rows: pa.RecordBatch) -> int:
    """The sum of a hash of each row. Fields are framed by bytes that no text contains."""
    fields = [column.cast(pa.binary()) for column in rows.columns]
    joined = pc.binary_join_element_wise(
        *fields, pa.scalar(b"\xfe", pa.binary()), null_handling="replace", null_replacement=b"\xff"
    )
    return sum(map(xxh3_64_intdigest, joined.to_pylist()))

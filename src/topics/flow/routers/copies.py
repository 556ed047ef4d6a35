"""From stored source records to the records a router appends: the same bytes, fewer or more around them.

Used when a copy is made and again when it is made anew at recovery, from equal columns to equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from topics.flow.routers.frames import CarriedRows, Stamp
from topics.log.write.batch import Batch, batch_from_columns
from topics.storage.columns import I64, META_KEY, U8, Columns
from topics.values.settings import MAX_META_KEYS

STAMP_KEY = "_topics_router"
ORIGINAL_KEY = "_topics_original_meta"
_STAMP_KEY_BYTES = STAMP_KEY.encode()
# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
_META_COUNT_BYTES = MAX_META_KEYS * 5
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


@dataclass(slots=True)
class SourceRows:
    """Source records taken apart. Nothing in it refers to the run it came from."""

    seqs: I64
    data: list[bytes]
    metas: list[bytes | None] | None
    nodes: list[str | None] | None
    tags: list[str | None] | None
    hops: U8 | None

    def __len__(self) -> int:
        return len(self.data)

    def take(self, indexes: I64) -> SourceRows:
        chosen = indexes.tolist()
        return SourceRows(
            self.seqs[indexes],
            [self.data[i] for i in chosen],
            None if self.metas is None else [self.metas[i] for i in chosen],
            None if self.nodes is None else [self.nodes[i] for i in chosen],
            None if self.tags is None else [self.tags[i] for i in chosen],
            None if self.hops is None else self.hops[indexes],
        )

    def carry(self) -> CarriedRows:
        hops = None if self.hops is None else self.hops.tobytes()
        return CarriedRows(self.seqs.tobytes(), self.data, self.metas, self.nodes, self.tags, hops)


def carried_rows(carried: CarriedRows) -> SourceRows:
    return SourceRows(
        np.frombuffer(carried.seqs, np.int64),
        carried.data,
        carried.metas,
        carried.nodes,
        carried.tags,
        None if carried.hops is None else np.frombuffer(carried.hops, np.uint8),
    )


NO_ROWS = SourceRows(np.empty(0, np.int64), [], None, None, None, None)


def rows_at(columns: Columns, indexes: I64) -> SourceRows:
    """The records at these indexes (ascending) of a run."""
    if not len(indexes):
        return NO_ROWS
    first, last = int(indexes[0]), int(indexes[-1])
    begin = int(columns.ends[first - 1]) if first else 0
    # One copy of the whole stretch: slices of bytes are cheap, views of a growing run are forbidden.
    block = bytes(memoryview(columns.rows)[begin : int(columns.ends[last])])
    data_ends = columns.data_ends(first, last + 1)[indexes - first] - begin
    data_begins = (data_ends - columns.data_lens_between(first, last + 1)[indexes - first]).tolist()
    ends = data_ends.tolist()
    return SourceRows(
        indexes + columns.base,
        [block[a:b] for a, b in zip(data_begins, ends, strict=True)],
        _metas(columns, indexes, block, ends),
        _names(columns.node_codes, columns.nodes, indexes),
        _names(columns.tag_codes, columns.tags, indexes),
        None if columns.hops is None else columns.hops[indexes],
    )


def _metas(columns: Columns, indexes: I64, block: bytes, data_ends: list[int]) -> list[bytes | None] | None:
    if columns.meta_lens is None:
        return None
    skip = len(META_KEY)
    return [
        block[end + skip : end + skip + length] if length else None
        for end, length in zip(data_ends, columns.meta_lens[indexes].tolist(), strict=True)
    ]


def _names(codes: Any, names: list[str], indexes: I64) -> list[str | None] | None:
    if codes is None:
        return None
    by_code: list[str | None] = [None, *names]
    return [by_code[code] for code in codes[indexes].tolist()]


def join_rows(parts: list[SourceRows]) -> SourceRows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_ROWS
    lengths = [len(part) for part in parts]
    hops = None
    if any(part.hops is not None for part in parts):
        hops = np.concatenate([np.zeros(len(p), np.uint8) if p.hops is None else p.hops for p in parts])
    return SourceRows(
        np.concatenate([part.seqs for part in parts]),
        [value for part in parts for value in part.data],
        _join([part.metas for part in parts], lengths),
        _join([part.nodes for part in parts], lengths),
        _join([part.tags for part in parts], lengths),
        hops,
    )


def _join(columns: list[Any], lengths: list[int]) -> list[Any] | None:
    """A column that only some parts have is empty in the others."""
    if all(column is None for column in columns):
        return None
    return [
        value
        for column, length in zip(columns, lengths, strict=True)
        for value in (column if column is not None else [None] * length)
    ]


def copies_of(
    rows: SourceRows, *, with_node: bool, with_tag: bool, stamp: Stamp | None
) -> tuple[Batch, bytes]:
    """The records to append, and how many routers each of them has passed by then."""
    metas = rows.metas
    if stamp is not None:
        old: list[bytes | None] = [None] * len(rows) if metas is None else metas
        metas = [stamped(meta, stamp, seq) for meta, seq in zip(old, rows.seqs.tolist(), strict=True)]
    batch = batch_from_columns(
        rows.data, metas, rows.nodes if with_node else None, rows.tags if with_tag else None
    )
    hops = bytes([1]) * len(rows) if rows.hops is None else (rows.hops + np.uint8(1)).tobytes()
    return batch, hops


def stamp_key(stamp: Stamp, seq: int) -> str:
    # The id of a topic instance is its epoch as well.
    return f"router:{stamp.router}:{stamp.source_id}:{stamp.source_id}:{seq}"


def stamped(meta: bytes | None, stamp: Stamp, seq: int) -> bytes:
    """The meta with the router's mark in it; what was there before keeps its bytes where possible."""
    mark = _encode(
        {
            "idempotency_key": stamp_key(stamp, seq),
            "router": stamp.router,
            "source_topic": stamp.source_name,
            "source_topic_id": stamp.source_id,
            "source_epoch": stamp.source_id,
            "source_seq": seq,
        }
    )
    added = b'"%b":%b}' % (_STAMP_KEY_BYTES, mark)
    if meta is None or meta == b"{}":
        return b"{" + added
    # Escapes may hide a mark of an earlier router.
    if len(meta) <= _META_COUNT_BYTES and _STAMP_KEY_BYTES not in meta and b"\\" not in meta:
        return meta[:-1] + b"," + added
    fields = _fields.decode(meta)
    if len(fields) >= MAX_META_KEYS:
        return _encode({STAMP_KEY: msgspec.Raw(mark), ORIGINAL_KEY: msgspec.Raw(meta)})
    if STAMP_KEY not in fields:
        return meta[:-1] + b"," + added
    return _encode(fields | {STAMP_KEY: msgspec.Raw(mark)})

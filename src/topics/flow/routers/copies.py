"""From stored source records to the records a router appends: the same bytes, fewer or more around them.

Used when a copy is made and again when it is made anew at recovery, from equal columns to equal bytes.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from topics import codec
from topics.codec import Write
from topics.core import MAX_META_KEYS
from topics.flow.routers.frames import CarriedRows, Stamp
from topics.storage import I64, Records

STAMP_KEY = "_topics_router"
ORIGINAL_KEY = "_topics_original_meta"
_STAMP_KEY_BYTES = STAMP_KEY.encode()
# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
_META_COUNT_BYTES = MAX_META_KEYS * 5
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


def carry(rows: Records) -> CarriedRows:
    hops = None if rows.hops is None else rows.hops.tobytes()
    return CarriedRows(rows.seqs.tobytes(), rows.data, rows.metas, rows.nodes, rows.tags, hops)


def carried_rows(carried: CarriedRows) -> Records:
    return Records(
        np.frombuffer(carried.seqs, np.int64),
        carried.data,
        carried.metas,
        carried.nodes,
        carried.tags,
        None if carried.hops is None else np.frombuffer(carried.hops, np.uint8),
    )


@dataclass(slots=True, frozen=True)
class Copies:
    """Records to append to a destination, and the number of routers that each of them has passed."""

    write: Write
    hops: bytes
    # Bytes of data and meta of each record.
    sizes: I64


def copies_of(rows: Records, *, with_node: bool, with_tag: bool, stamp: Stamp | None) -> Copies:
    """The records that a router appends for these records of its source."""
    metas = rows.metas
    if stamp is not None:
        old: list[bytes | None] = [None] * len(rows) if metas is None else metas
        metas = [stamped(meta, stamp, seq) for meta, seq in zip(old, rows.seqs.tolist(), strict=True)]
    write = codec.from_values(
        rows.data, metas, rows.nodes if with_node else None, rows.tags if with_tag else None
    )
    hops = bytes([1]) * len(rows) if rows.hops is None else (rows.hops + np.uint8(1)).tobytes()
    return Copies(write, hops, sizes_of(rows.data, metas))


def sizes_of(data: list[bytes], metas: list[bytes | None] | None) -> I64:
    """Bytes of data and meta of each record."""
    sizes = np.array([len(value) for value in data], np.int64)
    if metas is not None:
        sizes += np.array([0 if meta is None else len(meta) for meta in metas], np.int64)
    return sizes


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

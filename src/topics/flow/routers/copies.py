"""From stored source records to the records a router appends: the same bytes, fewer or more around them.

Used when a copy is made and again when it is made anew at recovery, from equal columns to equal bytes.
"""

import msgspec
import numpy as np

from topics.flow.routers.frames import CarriedRows, Stamp
from topics.log import Batch, batch_from_columns
from topics.storage import Records
from topics.values import MAX_META_KEYS

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


def copies_of(rows: Records, *, with_node: bool, with_tag: bool, stamp: Stamp | None) -> tuple[Batch, bytes]:
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

"""The payload of an Append frame: the rendered rows, and what cannot be read off them.

    rows length u32 | tags length u32 | rows | data lengths u32×n | [meta lengths u32×n] | [hops u8×n]
    | [tags, MessagePack] | [nodes, MessagePack]

Which of the bracketed parts are present is in the frame's flags.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

import msgspec

from topics.log.write.batch import Batch

HAS_META, HAS_TAGS, HAS_NODES, HAS_HOPS = 1, 2, 4, 8
_LENGTHS = struct.Struct("<II")
_pack = msgspec.msgpack.Encoder().encode
_unpack_names = msgspec.msgpack.Decoder(list[str | None])


def encode_append(batch: Batch, rows: bytes, hops: bytes | None = None) -> tuple[bytes, int]:
    """Payload and flags."""
    data_lens = batch.data_lens.tobytes()
    if batch.meta_lens is None and batch.tags is None and batch.nodes is None and hops is None:
        return b"".join((_LENGTHS.pack(len(rows), 0), rows, data_lens)), 0
    flags = 0
    parts = [b"", rows, data_lens]
    tags = b""
    if batch.meta_lens is not None:
        flags |= HAS_META
        parts.append(array("I", batch.meta_lens).tobytes())
    if hops is not None:
        flags |= HAS_HOPS
        parts.append(hops)
    if batch.tags is not None:
        flags |= HAS_TAGS
        tags = _pack(batch.tags)
        parts.append(tags)
    if batch.nodes is not None:
        flags |= HAS_NODES
        parts.append(_pack(batch.nodes))
    parts[0] = _LENGTHS.pack(len(rows), len(tags))
    return b"".join(parts), flags


class StoredBatch(Batch):
    """A batch read back from the journal: already rendered, so it only carries the side values."""

    __slots__ = ()

    def __init__(
        self,
        count: int,
        data_lens: Sequence[int],
        meta_lens: list[int] | None,
        nodes: list[str | None] | None,
        tags: list[str | None] | None,
    ) -> None:
        super().__init__([], data_lens, meta_lens, nodes, tags)
        self.count = count


def decode_append(payload: memoryview, count: int, flags: int) -> tuple[StoredBatch, bytes, bytes | None]:
    """The batch, its rows and its hops."""
    rows_length, tags_length = _LENGTHS.unpack_from(payload, 0)
    at = _LENGTHS.size
    rows = bytes(payload[at : at + rows_length])
    at += rows_length
    data_lens, at = _u32s(payload, at, count)
    meta_lens: list[int] | None = None
    hops: bytes | None = None
    tags: list[str | None] | None = None
    nodes: list[str | None] | None = None
    if flags & HAS_META:
        meta_lens, at = _u32s(payload, at, count)
    if flags & HAS_HOPS:
        hops = bytes(payload[at : at + count])
        at += count
    if flags & HAS_TAGS:
        tags = _unpack_names.decode(payload[at : at + tags_length])
        at += tags_length
    if flags & HAS_NODES:
        nodes = _unpack_names.decode(payload[at:])
    return StoredBatch(count, data_lens, meta_lens, nodes, tags), rows, hops


def plain_parts(payload: memoryview, count: int) -> tuple[memoryview, memoryview]:
    """Rows and data lengths of a frame without flags, where they lie."""
    at = len(payload) - 4 * count
    return payload[_LENGTHS.size : at], payload[at:]


def _u32s(payload: memoryview, at: int, count: int) -> tuple[list[int], int]:
    end = at + 4 * count
    return list(payload[at:end].cast("I")), end

"""What the journal holds of a batch: made of its rows, or rendered at once by the accelerator.

The payload of an Append frame is the rendered rows, and what cannot be read off them:

    rows length u32 | tags length u32 | rows | data lengths u32×n | [meta lengths u32×n] | [hops u8×n]
    | [tags, MessagePack] | [nodes, MessagePack]

Which of the bracketed parts are present is in the frame's flags.
"""

from array import array
from collections.abc import Sequence
from struct import Struct

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from topics.log.write.batch import Batch
from topics.storage.filesystem import Buffer
from topics.storage.journal import Payload, encode_header
from topics.values import accelerator
from topics.values.accelerator import Records

HAS_META, HAS_TAGS, HAS_NODES, HAS_HOPS = 1, 2, 4, 8
_LENGTHS = Struct("<II")
PAYLOAD_HEAD_BYTES = _LENGTHS.size
# A payload up to here is copied behind its keys; a larger one stays where it is.
_COPIED_BYTES = 256 * 1024
_pack = msgspec.msgpack.Encoder().encode
_unpack_names = msgspec.msgpack.Decoder(list[str | None])


def encode_payload(
    batch: Batch, rows: bytes | memoryview, hops: bytes | None = None, keys: bytes = b""
) -> tuple[Payload, int]:
    """Payload and flags. Keys stand before everything else."""
    if batch.prepared is not None and hops is None:
        payload, flags = batch.prepared
        if keys:
            return (keys, payload) if len(payload) > _COPIED_BYTES else keys + payload, flags
        return payload, flags
    if batch.meta_lens is None and batch.tags is None and batch.nodes is None and hops is None:
        return plain_payload(rows, batch.data_lens, keys), 0
    parts, flags = payload_parts(batch, rows, hops)
    return b"".join((keys, *parts)), flags


def plain_payload(rows: bytes | memoryview, data_lens: "array[int]", keys: bytes) -> bytes:
    """Of records that have nothing but data."""
    return b"".join((keys, _LENGTHS.pack(len(rows), 0), rows, data_lens.tobytes()))


def plain_frame(
    kind: int,
    rows: bytes,
    lengths: list[int],
    topic_id: int,
    first_seq: int,
    ts: int,
    synced: int,
    ahead_ms: int = 0,
    keys: bytes = b"",
) -> bytes:
    """The frame of records that have nothing but data, for which the accelerator has a function as well."""
    payload = b"".join((keys, _LENGTHS.pack(len(rows), 0), rows, array("I", lengths).tobytes()))
    digest, size, count = xxh3_64_intdigest(payload), len(payload), len(lengths)
    return encode_header(kind, 0, count, topic_id, first_seq, ts, synced, digest, size, ahead_ms) + payload


def payload_parts(
    batch: Batch, rows: bytes | memoryview, hops: bytes | None = None
) -> tuple[list[Buffer], int]:
    """What a payload consists of, and its flags."""
    flags = 0
    parts: list[Buffer] = [b"", rows, batch.data_lens.tobytes()]
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
    return parts, flags


class CutBatch(Batch):
    """Records of which the accelerator knows where they lie: it renders what their frame holds at once."""

    __slots__ = ("_ends", "_records", "prepared")

    def __init__(self, records: Records) -> None:
        self._records = records
        self._ends = b""
        self.count = records.count
        self.size = records.size
        self.meta_lens = array("I", records.meta_lens()) if records.has_metas else None
        self.nodes = records.nodes() if records.has_nodes else None
        self.tags = records.tags() if records.has_tags else None
        self.ends = None

    def render(self, first_seq: int, ts: int) -> memoryview:
        payload, length, self._ends, flags = self._records.payload(first_seq, ts)
        self.prepared = (payload, flags)
        return memoryview(payload)[PAYLOAD_HEAD_BYTES : PAYLOAD_HEAD_BYTES + length]

    def forget_prepared(self) -> None:
        self.prepared = None

    @property
    def data_lens(self) -> "array[int]":  # type: ignore[override]
        """Rarely asked for: the frame has them already, and the rows tell them."""
        return array("I", self._records.data_lens())

    def row_ends(self, rows: bytes | memoryview) -> np.ndarray:
        return np.frombuffer(self._ends, np.uint32)

    def ends_behind(self, offset: int) -> bytes:
        return accelerator.native.ends_behind(self._ends, offset)  # type: ignore[no-any-return]


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
        super().__init__([], data_lens, meta_lens=meta_lens, nodes=nodes, tags=tags)
        self.count = count


def decode_payload(payload: memoryview, count: int, flags: int) -> tuple[StoredBatch, bytes, bytes | None]:
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

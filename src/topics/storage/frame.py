"""The journal's unit: one frame, one fact.

    magic u32 | header checksum u32 | payload checksum u64 | payload length u32 | kind u8 | flags u8
    ahead u16 | count u32 | ahead u32 | topic id u64 | first seq u64 | ts u64 | synced u64 | payload

`ahead` is by how many milliseconds `ts` lies ahead of the clock by which the frame was written: its upper 16
bits, then the lower 32. The time of records never falls in a topic, though a clock may be set back.
`synced` is how far the journal was known to be on disk when this frame was written. It is how recovery
tells damage in data that had been synced (announce it, go on) from a torn tail (cut it).
The header has a checksum of its own so that a rotten payload still says which seqs it took with it.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import structs
from xxhash import xxh3_64, xxh3_64_intdigest

from topics.core import InvariantViolated
from topics.storage.filesystem import Buffer

FRAME_MAGIC = 0x314A5046  # the bytes "FPJ1"
FRAME_MAGIC_BYTES = struct.pack("<I", FRAME_MAGIC)
FIELDS = struct.Struct("<QIBBHIIQQQQ")  # everything after the header checksum
PREFIX = struct.Struct("<II")
HEADER_BYTES = PREFIX.size + FIELDS.size
U32 = 0xFFFFFFFF
# A frame with a smaller payload is written as one buffer: a copy costs less than another buffer.
SMALL_PAYLOAD_BYTES = 4096
# The write path calls them for every frame.
_pack_fields, _pack_prefix = FIELDS.pack, PREFIX.pack


class Kind(IntEnum):
    """What a frame says. Numbers are on disk: never reuse one."""

    CREATE = 1
    CONFIG = 2
    DROP = 3
    APPEND = 4
    ADVANCE = 5  # seqs used by records that are not kept (class ephemeral)
    DELETE = 6
    RESERVE = 7
    HOLE = 8
    CLOCK = 9
    HEADS = 10
    ROUTER_PUT = 11
    ROUTER_DROP = 12
    ROUTE = 13
    LEASE = 14
    CURSOR = 15
    DEAD_LETTER = 17
    LINES = 18  # loss lines that moved without a frame from which replay could tell
    GROUP = 19  # whole frames, one behind the other, that count together or not at all
    KEYED = 20  # an append with idempotency keys
    QUEUE_LOSSES = 21  # which lost jobs the workers of a queue have been told of
    CREATE_AGAIN = 22  # as CREATE, under a name that an earlier topic had
    STAGE = 23
    VOID = 24  # was another frame, and was taken back; what is left of it means nothing
    CLOCK_SET_BACK = 25  # time goes on from here, although it had been later
    ADOPT = 26  # records that a segment has had from the beginning; only in files that may hold such
    PIPELINE = 27  # what a pipeline says of itself


# A topic is there from now on.
CREATIONS = (Kind.CREATE, Kind.CREATE_AGAIN)


class _Fields(msgspec.Struct, frozen=True, gc=False):
    """What a header says, whether or not its payload could be read."""

    kind: int
    flags: int
    count: int
    topic_id: int
    first_seq: int
    ts: int
    synced: int
    ahead_ms: int = 0

    @property
    def clock_ms(self) -> int:
        """What time it was."""
        return self.ts - self.ahead_ms

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1


class Header(_Fields, frozen=True, gc=False, kw_only=True):
    """A header whose own checksum fits; the payload is still unverified."""

    payload_checksum: int
    payload_length: int


class Frame(_Fields, frozen=True, gc=False, kw_only=True):
    """A frame read back. `position` is where it starts in the journal's one long address space."""

    position: int
    payload: memoryview

    @property
    def end(self) -> int:
        return self.position + HEADER_BYTES + len(self.payload)


def decode_header(data: bytes | memoryview, at: int = 0) -> Header | None:
    """The header at `at`, or None when these bytes are not one."""
    if at + HEADER_BYTES > len(data):
        return None
    magic, digest = PREFIX.unpack_from(data, at)
    if magic != FRAME_MAGIC:
        return None
    fields = data[at + PREFIX.size : at + HEADER_BYTES]
    if xxh3_64_intdigest(fields) & U32 != digest:
        return None
    crc, length, kind, flags, ahead, count, ahead_low, topic_id, first_seq, ts, synced = FIELDS.unpack(fields)
    ahead_ms = ahead << 32 | ahead_low
    return Header(
        kind,
        flags,
        count,
        topic_id,
        first_seq,
        ts,
        synced,
        ahead_ms,
        payload_checksum=crc,
        payload_length=length,
    )


def encode_header(
    kind: int,
    flags: int,
    count: int,
    topic_id: int,
    first_seq: int,
    ts: int,
    payload_checksum: int,
    payload_length: int,
    ahead_ms: int = 0,
    *,
    position: int,
    synced: int,
) -> bytes:
    """Build the header of a frame: the only function that does.

    `position`: where the frame begins, counted from the beginning of the log's journal. Every byte before
    `synced` is on disk, so a frame that is still to be written cannot begin before it.
    """
    if synced > position:
        raise InvariantViolated(f"a frame at {position} cannot claim that {synced} bytes are synced")
    fields = _pack_fields(
        payload_checksum,
        payload_length,
        kind,
        flags,
        ahead_ms >> 32,
        count,
        ahead_ms & U32,
        topic_id,
        first_seq,
        ts,
        synced,
    )
    return _pack_prefix(FRAME_MAGIC, xxh3_64_intdigest(fields) & U32) + fields


class FrameDraft:
    """A frame that waits for its position in the journal.

    The payload is one buffer, or several buffers that are not worth a copy. The payload of a GROUP frame is a
    list of drafts: whole frames, one after the other.
    """

    __slots__ = (
        "ahead_ms",
        "checksum",
        "count",
        "first_seq",
        "flags",
        "kind",
        "payload",
        "position",
        "size",
        "topic_id",
        "ts",
    )

    def __init__(
        self,
        kind: int,
        payload: "Payload" = b"",
        topic_id: int = 0,
        first_seq: int = 0,
        count: int = 0,
        ts: int = 0,
        flags: int = 0,
        ahead_ms: int = 0,
    ) -> None:
        self.kind = kind
        self.payload = payload
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.count = count
        self.ts = ts
        self.flags = flags
        self.ahead_ms = ahead_ms
        # The bytes that the frame takes in the journal, header included.
        self.size: int
        if isinstance(payload, tuple):
            self.size = HEADER_BYTES + sum(map(len, payload))
        elif isinstance(payload, list):
            self.size = HEADER_BYTES + sum([frame.size for frame in payload])
        else:
            self.size = HEADER_BYTES + len(payload)
        # Where the frame begins in the journal, once it is encoded.
        self.position = 0
        # Of the payload, once it is known. That of a group depends on its position.
        self.checksum: int | None = None


Payload: TypeAlias = Buffer | tuple[Buffer, ...] | list[FrameDraft]


def _checksum_of(parts: Sequence[Buffer]) -> int:
    digest = xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()


def encode_frames(frames: Iterable[FrameDraft], position: int, synced: int) -> list[Buffer]:
    """Return the buffers of frames that lie one after the other from this position on."""
    buffers: list[Buffer] = []
    for frame in frames:
        payload, length, checksum = frame.payload, frame.size - HEADER_BYTES, frame.checksum
        frame.position = position
        parts: Sequence[Buffer]
        if isinstance(payload, list):
            parts = encode_frames(payload, position + HEADER_BYTES, synced)
            checksum = None
        else:
            parts = payload if isinstance(payload, tuple) else (payload,)
        if length < SMALL_PAYLOAD_BYTES and len(parts) > 1:
            parts = (b"".join(parts),)
        if checksum is None:
            checksum = xxh3_64_intdigest(parts[0]) if len(parts) == 1 else _checksum_of(parts)
            frame.checksum = checksum
        header = encode_header(
            frame.kind,
            frame.flags,
            frame.count,
            frame.topic_id,
            frame.first_seq,
            frame.ts,
            checksum,
            length,
            frame.ahead_ms,
            position=position,
            synced=synced,
        )
        if length < SMALL_PAYLOAD_BYTES:
            buffers.append(b"".join((header, *parts)))
        else:
            buffers += (header, *parts)
        position += frame.size
    return buffers


SALT_BYTES = 16
DIGEST_BYTES = 16
_HEAD = struct.Struct(f"<I{SALT_BYTES}s")
_BYTES_A_KEY = 4 + 4 + DIGEST_BYTES


class Keys(NamedTuple):
    """The idempotency keys of an append. One KEYED frame has both, so that they stand or fall together.

        keys u32 | salt 16 | offsets u32×keys | counts u32×keys | digests 16×keys | payload of an APPEND frame

    A key stands for `count` records of the frame, from the one at its offset on. Only a digest of the key is
    written, made with the salt.
    """

    salt: bytes
    offsets: "array[int]"
    counts: "array[int]"
    # One behind the other.
    digests: bytes


def encode_keys(salt: bytes, offsets: "array[int]", counts: "array[int]", digests: bytes) -> bytes:
    """The keys of a frame. The payload of the append follows them."""
    head = _HEAD.pack(len(counts), salt)
    return b"".join((head, offsets, counts, digests))


def decode_keys(payload: memoryview) -> Keys:
    count, salt = _HEAD.unpack_from(payload)
    at = _HEAD.size
    offsets = array("I", payload[at : at + 4 * count].tobytes())
    counts = array("I", payload[at + 4 * count : at + 8 * count].tobytes())
    return Keys(salt, offsets, counts, bytes(payload[at + 8 * count :]))


def apart(frame: Frame) -> Iterator[Frame]:
    """The append as it would be without keys, then the keys; both lie where the frame lies."""
    border = _HEAD.size + _BYTES_A_KEY * _HEAD.unpack_from(frame.payload)[0]
    yield structs.replace(frame, kind=int(Kind.APPEND), payload=frame.payload[border:])
    yield structs.replace(frame, payload=frame.payload[:border])

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
from enum import IntEnum

import msgspec
from xxhash import xxh3_64_intdigest

FRAME_MAGIC = 0x314A5046  # the bytes "FPJ1"
FRAME_MAGIC_BYTES = struct.pack("<I", FRAME_MAGIC)
FIELDS = struct.Struct("<QIBBHIIQQQQ")  # everything after the header checksum
PREFIX = struct.Struct("<II")
HEADER_BYTES = PREFIX.size + FIELDS.size
U32 = 0xFFFFFFFF


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
    STAGE = 16  # without an owner: of earlier editions, and only read
    DEAD_LETTER = 17
    LINES = 18  # loss lines that moved without a frame from which replay could tell
    GROUP = 19  # whole frames, one behind the other, that count together or not at all
    KEYED = 20  # an append with idempotency keys
    QUEUE_LOSSES = 21  # which lost jobs the workers of a queue have been told of
    CREATE_AGAIN = 22  # as CREATE, under a name that an earlier topic had
    OWNED_STAGE = 23
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

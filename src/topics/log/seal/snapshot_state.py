"""What a snapshot holds: everything recovery needs except record data, which segments and journal have."""

import struct
from typing import Any

import msgspec

from topics.core import TopicConfig


class RunState(msgspec.Struct, array_like=True, gc=False):
    """A sealed run, or (segment 0) one whose records were all deleted."""

    base: int
    count: int
    segment: int
    first_ts: int
    last_ts: int
    live_count: int
    live_bytes: int
    dead_count: int
    unflipped: bytes


class TopicState(msgspec.Struct, array_like=True, gc=False):
    id: int
    name: str
    config: TopicConfig
    seq_base: int
    head: int
    floor: int
    cap_hi: int
    ttl_hi: int
    trim_hi: int
    lost_hi: int
    delete_below: int
    last_ts: int
    last_write_ts: int | None
    reserved: int
    runs: list[RunState]
    # Deleted seqs among the records that are only in the journal so far.
    unsealed_dead: bytes
    holes: list[tuple[Any, ...]]
    ledger: tuple[bytes, bytes, bytes]
    # Four i64 for each stretch: first seq, last seq, the times between which they went.
    gone_times: bytes


# What a topic and its state have under the same name, as it is.
_names = TopicState.__struct_fields__
CAPTURED_AS_IS = _names[_names.index("head") : _names.index("runs")]


class SnapshotState(msgspec.Struct, array_like=True, gc=False):
    position: int
    # Record data of unsealed runs has to be read again from here on.
    replay_from: int
    next_topic_id: int
    next_segment: int
    clock_ms: int
    topics: list[TopicState]
    extensions: dict[str, Any]


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(SnapshotState)
# MessagePack's heads: of arrays, with few items or with a 32-bit length, and of bytes with such a length.
_FEW, _MANY_MARK, _BYTES_MARK = 0x90, 0xDD, 0xC6
_MANY = struct.Struct(">BI")
# A map of less than sixteen.
_MAP = 0x80

Part = bytes | bytearray | memoryview


def array_head(count: int) -> bytes:
    return bytes((_FEW + count,)) if count < 16 else _MANY.pack(_MANY_MARK, count)


def bytes_head(size: int) -> bytes:
    return _MANY.pack(_BYTES_MARK, size)


class EncodedState:
    """State of an extension that is MessagePack already, in parts that are not copied while writes wait."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


def encode_topic(state: TopicState) -> bytes:
    return encode(state)


def encode_snapshot(state: SnapshotState, topics: list[bytes]) -> list[Part]:
    """A snapshot whose topics are encoded already, in parts: joining them is work for another thread."""
    numbers = (state.position, state.replay_from, state.next_topic_id, state.next_segment, state.clock_ms)
    parts: list[Part] = [array_head(len(state.__struct_fields__)), *map(encode, numbers)]
    parts += [array_head(len(topics)), *topics, bytes((_MAP + len(state.extensions),))]
    for name, saved in state.extensions.items():
        parts.append(encode(name))
        parts += saved.parts if isinstance(saved, EncodedState) else [encode(saved)]
    return parts


def decode(body: bytes) -> SnapshotState | None:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None

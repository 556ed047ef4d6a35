"""What a snapshot holds: everything recovery needs except record data, which segments and journal have."""

import struct
from typing import Any

import msgspec

from topics.values import TopicConfig


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
# MessagePack's heads of an array of seven, which a snapshot is, and of one with a 32-bit length.
_SEVEN = b"\x97"
_MANY = struct.Struct(">BI")
_MANY_MARK = 0xDD


def encode_snapshot(state: SnapshotState, topics: list[bytes]) -> list[bytes]:
    """A snapshot whose topics are encoded already, in parts: joining them is work for another thread."""
    numbers = (state.position, state.replay_from, state.next_topic_id, state.next_segment, state.clock_ms)
    head = [_SEVEN, *map(encode, numbers), _MANY.pack(_MANY_MARK, len(topics))]
    return [*head, *topics, encode(state.extensions)]


def decode(body: bytes) -> SnapshotState | None:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None

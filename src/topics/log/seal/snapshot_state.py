"""What a snapshot holds: everything recovery needs except record data, which segments and journal have."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import msgspec
import numpy as np

from topics.log.holes import Hole
from topics.log.run import Run
from topics.log.topic import Topic
from topics.values.config import TopicConfig


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


def capture_topic(topic: Topic) -> TopicState:
    return TopicState(
        topic.id,
        topic.name,
        topic.config,
        topic.seq_base,
        topic.head,
        topic.floor,
        topic.cap_hi,
        topic.ttl_hi,
        topic.trim_hi,
        topic.lost_hi,
        topic.delete_below,
        topic.last_ts,
        topic.last_write_ts,
        topic.reserved,
        [_capture_run(run) for run in topic.runs if run.sealed is not None or run.hot is None],
        _unsealed_dead(topic),
        [_capture_hole(hole) for hole in topic.holes],
        topic.ledger.dump(),
    )


def _capture_hole(hole: Hole) -> tuple[Any, ...]:
    usual = (hole.first, hole.last, hole.kind, hole.interior)
    return usual if hole.hops == 1 else (*usual, hole.hops)


def _capture_run(run: Run) -> RunState:
    return RunState(
        run.base,
        run.count,
        0 if run.sealed is None else run.sealed.segment,
        run.first_ts,
        run.last_ts,
        run.live_count,
        run.live_bytes,
        run.dead_count,
        b"" if run.sealed is None else run.sealed.unflipped.tobytes(),
    )


def _unsealed_dead(topic: Topic) -> bytes:
    parts = []
    for run in topic.runs:
        if run.sealed is None and run.dead is not None:
            marks = np.frombuffer(run.dead, np.uint8)
            parts.append((np.flatnonzero(marks) + run.base).astype(np.int64).tobytes())
            del marks
    return b"".join(parts)


def restore_topic(topic: Topic, state: TopicState) -> None:
    """Everything but record data. Live totals follow from the runs once those are complete."""
    topic.head = topic.assigned = state.head
    topic.floor = state.floor
    topic.cap_hi, topic.ttl_hi = state.cap_hi, state.ttl_hi
    topic.trim_hi, topic.lost_hi = state.trim_hi, state.lost_hi
    topic.delete_below = state.delete_below
    topic.last_ts = state.last_ts
    topic.last_write_ts = state.last_write_ts
    topic.reserved = topic.reserve_asked = state.reserved
    topic.holes = [Hole(*hole) for hole in state.holes]
    topic.ledger.load(state.ledger)
    for run_state in state.runs:
        topic.insert_run(_restore_run(topic, run_state))


def _restore_run(topic: Topic, state: RunState) -> Run:
    run = Run(topic.id, state.base)
    run.hot = None
    run.count = state.count
    run.first_ts, run.last_ts = state.first_ts, state.last_ts
    run.live_count, run.live_bytes = state.live_count, state.live_bytes
    run.dead_count = state.dead_count
    if state.segment:
        topic.store.seal(run, state.segment, array("I", state.unflipped))
    return run

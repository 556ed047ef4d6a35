"""Frames of writes that consist of one plain record each, as the accelerator and as Python makes them."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from topics.log.write.append_frame import plain_frame
from topics.log.write.gather import split_plain
from topics.storage.rows import rows_and_ends

KIND, TOPIC, TS, AHEAD_MS, SYNCED = 20, 7, 1_760_011_200_450, 1 << 33, 12


class Made(NamedTuple):
    frame: bytes
    rows: bytes
    # Where each row ends, behind the bytes that were there.
    ends: list[int]
    # Of the data.
    size: int


def frame_of(
    native: Any, bodies: list[bytes], first_seq: int, keys: bytes = b"", offset: int = 77
) -> Made | None:
    """None if one of them is anything else."""
    if native is not None:
        made = native.plain_frame(
            KIND, keys, bodies, TOPIC, first_seq, TS, AHEAD_MS, SYNCED, offset, xxh3_64_intdigest
        )
        if made is None:
            return None
        frame, start, stop, ends, size = made
        return Made(frame, frame[start:stop], [*array("I", ends)], size)
    plain = split_plain(bodies)
    if plain is None:
        return None
    values, lengths = plain
    rows, row_ends = rows_and_ends(values, first_seq, TS, offset)
    frame = plain_frame(KIND, rows, lengths, TOPIC, first_seq, TS, SYNCED, AHEAD_MS, keys)
    return Made(frame, rows, row_ends, sum(lengths))

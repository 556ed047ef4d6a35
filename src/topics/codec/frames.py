"""Small frames of the journal, found and read together: one after the other, of one topic, with only data.

`topics/storage/frame.py` describes frames; these functions read as much of them as recovery needs in bulk.
"""

import struct
from array import array
from itertools import pairwise

import numpy as np
from xxhash import xxh3_64_intdigest

from topics.codec.python import Buffer

FRAME_MAGIC = b"FPJ1"
# Magic, checksum of the rest, checksum and length of the payload, kind, flags, time ahead, count, time ahead,
# topic id, first seq, ts, synced.
HEADER = struct.Struct("<4sIQIBBHIIQQQQ")
_FIELDS_AT = 8
_APPEND = 4
# Frames of more records are large enough to be read one by one.
SMALL_RECORDS = 16
# The rows of a payload follow the lengths of rows and tags.
_ROWS_AT = HEADER.size + 8


def find_frames(window: bytes, topic_id: int, first_seq: int, position: int, /) -> bytes:
    """The places of small frames of this topic, from the first byte of the window on, each after the other.

    Returns them as int64, and after them the end of the last frame. `position` is where the window begins in
    the journal. Headers are checked, payloads are not.
    """
    starts, at = [0], 0
    while at + HEADER.size <= len(window):
        magic, checksum, _, length, kind, flags, _, count, _, topic, seq, _, synced = HEADER.unpack_from(
            window, at
        )
        is_expected = (
            magic == FRAME_MAGIC
            and kind == _APPEND
            and not flags
            and count <= SMALL_RECORDS
            and topic == topic_id
            and seq == first_seq
            # No frame knows of a sync after itself.
            and synced <= position + at
            and 8 + 4 * count <= length <= len(window) - at - HEADER.size
        )
        fields = window[at + _FIELDS_AT : at + HEADER.size]
        if not is_expected or xxh3_64_intdigest(fields) & 0xFFFFFFFF != checksum:
            break
        at += HEADER.size + length
        first_seq += count
        starts.append(at)
    return array("q", starts).tobytes()


def frame_parts(window: bytes, starts: Buffer, /) -> tuple[bytes, bytes]:
    """The rows of all these frames, and the lengths of their data as u32."""
    edges = np.frombuffer(starts, np.int64).tolist()
    rows, lengths = [], []
    for begin, end in pairwise(edges):
        if begin < 0 or end > len(window) or end - begin < _ROWS_AT:
            raise ValueError("there are no such frames")
        own = 4 * HEADER.unpack_from(window, begin)[7]
        if end - begin < _ROWS_AT + own:
            raise ValueError("there are no such frames")
        rows.append(window[begin + _ROWS_AT : end - own])
        lengths.append(window[end - own : end])
    return b"".join(rows), b"".join(lengths)

"""The frame of writes that consist of one plain record each, rendered at once.

Nearly all small writes are of this kind: no tag, no node, no meta. Their frame is rows and lengths, and in
front of them, where the writes have idempotency keys, those.
"""

from array import array
from typing import TypeAlias

from xxhash import xxh3_64_intdigest

from topics.log.write.append_frame import plain_payload
from topics.log.write.gather import Plain, split_plain
from topics.storage.journal import encode_header
from topics.storage.rows import rows_and_ends
from topics.values import accelerator

# The frame; its rows; where each row ends behind those that are there; and how many bytes of data the records
# have.
PlainFrame: TypeAlias = tuple[bytes, bytes | memoryview, "array[int]", int]


def plain_frame(
    kind: int,
    keys: bytes,
    bodies: list[bytes],
    topic_id: int,
    first_seq: int,
    ts: int,
    ahead_ms: int,
    synced: int,
    offset: int,
    plain: Plain | None = None,
) -> PlainFrame | None:
    """None if one of the bodies is anything but one plain record. `offset`: bytes of rows that are there.

    `plain`: what they hold, where that is known.
    """
    native = accelerator.native
    if native is not None:
        made = native.plain_frame(
            kind, keys, bodies, topic_id, first_seq, ts, ahead_ms, synced, offset, xxh3_64_intdigest
        )
        if made is None:
            return None
        frame, start, stop, packed_ends, size = made
        return frame, memoryview(frame)[start:stop], array("I", packed_ends), size
    plain = plain or split_plain(bodies)
    if plain is None:
        return None
    values, lengths = plain
    rows, ends = rows_and_ends(values, first_seq, ts, offset)
    payload = plain_payload(rows, array("I", lengths), keys)
    digest, count = xxh3_64_intdigest(payload), len(lengths)
    header = encode_header(kind, 0, count, topic_id, first_seq, ts, synced, digest, len(payload), ahead_ms)
    return header + payload, rows, array("I", ends), sum(lengths)

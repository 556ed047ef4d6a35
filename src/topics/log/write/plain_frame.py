"""The frame of writes that consist of one plain record each, rendered at once.

Nearly all small writes are of this kind: no tag, no node, no meta. Their frame is rows and lengths, and in
front of them, where the writes have idempotency keys, those.
"""

from array import array

from xxhash import xxh3_64_intdigest

from topics.log.write.append_frame import PAYLOAD_HEAD_BYTES, plain_payload
from topics.log.write.gather import split_plain
from topics.storage.frame import HEADER_BYTES
from topics.storage.journal import encode_header
from topics.storage.rows import rows_and_ends
from topics.values import accelerator

# The frame; where its rows begin in it, and end; where each row ends behind those that are there, as u32; and
# how many bytes of data the records have.
PlainFrame = tuple[bytes, int, int, bytes, int]


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
    values: list[bytes] | None = None,
) -> PlainFrame | None:
    """None if one of the bodies is anything but one plain record. `offset`: bytes of rows that are there.

    `values`: the data of each, where that is known.
    """
    native = accelerator.native
    if native is not None:
        return native.plain_frame(  # type: ignore[no-any-return]
            kind, keys, bodies, topic_id, first_seq, ts, ahead_ms, synced, offset, xxh3_64_intdigest
        )
    values = values or split_plain(bodies)
    if values is None:
        return None
    rows, lengths, ends = rows_and_ends(values, first_seq, ts, offset)
    payload = plain_payload(rows, array("I", lengths), keys)
    digest, count = xxh3_64_intdigest(payload), len(lengths)
    header = encode_header(kind, 0, count, topic_id, first_seq, ts, synced, digest, len(payload), ahead_ms)
    start = HEADER_BYTES + len(keys) + PAYLOAD_HEAD_BYTES
    return header + payload, start, start + len(rows), array("I", ends).tobytes(), sum(lengths)

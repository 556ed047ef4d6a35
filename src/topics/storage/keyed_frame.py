"""An append with idempotency keys: one frame has records and keys, so that they stand or fall together.

    keys u32 | salt 16 | offsets u32×keys | counts u32×keys | digests 16×keys | payload as of an Append frame

A key stands for `count` records of the frame, from the one at its offset on. What it was is not written, only
a digest of it, made with the salt.
"""

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from msgspec import structs

from topics.storage.frame import Frame, Kind

SALT_BYTES = 16
DIGEST_BYTES = 16
_HEAD = Struct(f"<I{SALT_BYTES}s")
_BYTES_A_KEY = 4 + 4 + DIGEST_BYTES


class Keys(NamedTuple):
    """The keys of one frame."""

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

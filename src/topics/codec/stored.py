"""Records read back from the payload of an Append frame.

    rows length u32 | length of the first names u32 | rows | data lengths u32×n | [meta lengths u32×n]
    | [hops u8×n] | [names, MessagePack] …

The flags of the frame say which of the bracketed parts are present: names are one array for each field of
`FIELDS` of which a record has a value.
"""

import struct
from functools import cached_property

import msgspec
import numpy as np

from topics.core import FIELDS, NameColumns

HAS_META, HAS_HOPS = 1, 8
_HEAD = struct.Struct("<II")
_names = msgspec.msgpack.Decoder(list[list[str | None]])
# MessagePack: what comes before so many elements of an array, at most 15.
_ARRAY = 0x90


class StoredRows:
    """Rows as they were encoded once."""

    def __init__(self, text: bytes, data_lens: bytes, first_seq: int, ts: int) -> None:
        self.text: bytes | memoryview = text
        self.data_lens = data_lens
        self.first_seq = first_seq
        self.ts = ts
        self.count = len(data_lens) // 4
        self.meta_lens: bytes | None = None
        self.hops: bytes | None = None
        self.names: NameColumns = ()

    @classmethod
    def read(cls, payload: memoryview, count: int, flags: int, first_seq: int, ts: int) -> "StoredRows":
        """The rows in the payload of a frame with these fields in its header."""
        text_bytes, _ = _HEAD.unpack_from(payload)
        at = _HEAD.size + text_bytes
        rows = cls(bytes(payload[_HEAD.size : at]), bytes(payload[at : at + 4 * count]), first_seq, ts)
        at += 4 * count
        if flags & HAS_META:
            rows.meta_lens = bytes(payload[at : at + 4 * count])
            at += 4 * count
        if flags & HAS_HOPS:
            rows.hops = bytes(payload[at : at + count])
            at += count
        present = [bool(flags & field.flag) for field in FIELDS]
        if any(present):
            found = iter(_names.decode(bytes([_ARRAY + sum(present)]) + payload[at:]))
            rows.names = tuple(next(found) if is_present else None for is_present in present)
        return rows

    @property
    def size(self) -> int:
        """Bytes of data and meta."""
        size = int(np.frombuffer(self.data_lens, np.uint32).sum(dtype=np.int64))
        if self.meta_lens is not None:
            size += int(np.frombuffer(self.meta_lens, np.uint32).sum(dtype=np.int64))
        return size

    @cached_property
    def ends(self) -> bytes:
        """The end of each row. Newlines separate rows and never occur inside of one."""
        newlines = np.flatnonzero(np.frombuffer(self.text, np.uint8) == 10)
        return (newlines + 1).astype(np.uint32).tobytes()


def plain_parts(payload: memoryview, count: int) -> tuple[memoryview, memoryview]:
    """Rows and data lengths of a frame without flags, where they lie."""
    at = len(payload) - 4 * count
    return payload[_HEAD.size : at], payload[at:]

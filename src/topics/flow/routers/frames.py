"""What routers write into the journal: definitions, and steps.

A step tells which source seqs became which destination seqs, for all routers of one source that moved
together; it does not repeat the records. `carried` is the exception: records of which the journal will not
have the original any more when recovery wants to read it.
"""

from typing import Any

import msgspec
import numpy as np

from topics.flow.routers.definitions import Definition
from topics.storage import I64

# GONE is never written: copies that recovery cannot bring back.
COPIES, HOLE_IN_FRONT, HOLE_INSIDE, GONE = range(4)


class CopyRange(msgspec.Struct, array_like=True, gc=False):
    """Consecutive destination seqs: copies of source records, or a hole for each one that was lost."""

    kind: int
    first_source: int
    count: int
    first_dest: int
    # Where the copied source seqs are not consecutive: their distances from the first one. Of a hole that
    # has come through several routers: how many.
    offsets: bytes = b""

    @property
    def hops(self) -> int:
        """Of a hole."""
        return self.offsets[0] if self.offsets else 1

    @property
    def last_dest(self) -> int:
        return self.first_dest + self.count - 1

    @property
    def last_source(self) -> int:
        return int(self.source_seqs()[-1]) if self.offsets else self.first_source + self.count - 1

    def source_seqs(self) -> I64:
        if self.offsets:
            return np.frombuffer(self.offsets, np.uint32).astype(np.int64) + self.first_source
        return np.arange(self.first_source, self.first_source + self.count, dtype=np.int64)


class Stamp(msgspec.Struct, array_like=True, gc=False):
    """What an exactly-once router adds to the meta of its copies, apart from the seq."""

    router: str
    source_name: str
    source_id: int


class CopyPlan(msgspec.Struct, array_like=True, gc=False):
    """What one router did in a step."""

    router: int
    cursor: int
    forwarded: int
    dest: int
    ts: int
    # False for copies of class ephemeral: their seqs are used, their bytes are not kept.
    kept: bool
    with_node: bool
    with_tag: bool
    stamp: Stamp | None
    pieces: list[CopyRange]


class CarriedRows(msgspec.Struct, array_like=True, gc=False):
    """Source records as columns, in the order of their seqs."""

    seqs: bytes
    data: list[bytes]
    metas: list[bytes | None] | None
    nodes: list[str | None] | None
    tags: list[str | None] | None
    hops: bytes | None


class Step(msgspec.Struct, array_like=True, gc=False):
    source: int
    plans: list[CopyPlan]
    carried: CarriedRows | None = None


class RouterState(msgspec.Struct, array_like=True, gc=False):
    """A router in a snapshot."""

    definition: Definition
    forwarded: int
    keys_scanned: int
    keys_seen: dict[int, int]


class RoutersState(msgspec.Struct, array_like=True, gc=False):
    next_id: int
    routers: list[RouterState]
    # Topics whose records steps in the journal refer to, and where the last such step ended.
    referred: dict[int, int]


encode = msgspec.msgpack.Encoder().encode
decode_definition = msgspec.msgpack.Decoder(Definition).decode
decode_step = msgspec.msgpack.Decoder(Step).decode
decode_router_id = msgspec.msgpack.Decoder(int).decode


def state_from_plain(value: Any) -> RoutersState:
    return msgspec.convert(value, RoutersState)

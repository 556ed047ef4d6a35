"""The compiled module, by the names in `src/_native/codec.c`. The Python codec has the same functions."""

from typing import final

from topics.codec.python import Buffer
from topics.core import NameColumns

LIMITS: tuple[int, ...]
FIELDS: tuple[tuple[str, int, int, int], ...]
SOURCE: str

@final
class Write:
    """The records and options of one append request."""

    count: int
    size: int
    key: bytes | None
    create: bool | None
    config: bytes | None
    patient: bool
    return_seqs: bool

@final
class Rows:
    """Rendered rows, and the payload of the Append frame that holds them."""

    count: int
    size: int
    first_seq: int
    ts: int
    flags: int
    payload: bytes
    text: bytes | memoryview
    ends: bytes
    data_lens: bytes
    meta_lens: bytes | None
    hops: bytes | None
    names: NameColumns

def decode(bodies: list[bytes], *, publish: bool = False) -> list[Write | None]: ...
def from_columns(
    data: Buffer,
    data_offsets: Buffer,
    metas: list[bytes | None] | None,
    names: NameColumns,
    *,
    checked: bool,
) -> Write | None: ...
def encode(writes: list[Write], first_seq: int, ts: int, hops: bytes | None = None) -> Rows: ...
def page(before: bytes, rows: bytes, after: bytes, /) -> bytes: ...
def alive(
    rows: Buffer,
    ends: Buffer,
    borders: Buffer | None,
    marks: Buffer,
    start: int,
    stop: int,
    room: int,
    budget: int,
    /,
) -> tuple[bytes, int] | None: ...
def find_frames(window: bytes, topic_id: int, first_seq: int, position: int, /) -> bytes: ...
def frame_parts(window: bytes, starts: Buffer, /) -> tuple[bytes, bytes]: ...

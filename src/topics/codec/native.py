"""The compiled codec. `src/_native/codec.c` is its source, which `scripts/build_native.py` compiles.

Importing this module raises `ImportError` if the compiled module is missing or does not fit.
"""

import zlib
from pathlib import Path

import msgspec

import topics.codec._native as _native
from topics.codec import mistakes, python
from topics.codec._native import (
    Rows,
    Write,
    alive,
    decode,
    encode,
    find_frames,
    frame_parts,
    from_columns,
    page,
)
from topics.codec.append_body import MAX_DEPTH, MOST_AROUND_RECORD
from topics.core import (
    FIELDS,
    MAX_BATCH_RECORDS,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_RECORD_BYTES,
    Note,
)

__all__ = [
    "Rows",
    "Write",
    "alive",
    "decode",
    "encode",
    "explain",
    "find_frames",
    "frame_parts",
    "from_columns",
    "page",
]

# A clone has it; an installed package does not.
SOURCE = Path(__file__).parents[2] / "_native" / "codec.c"
LIMITS = (
    MAX_BATCH_RECORDS,
    MAX_RECORD_BYTES,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_DEPTH,
    MOST_AROUND_RECORD,
)
NAMED_FIELDS = tuple((field.name, field.max_bytes, field.flag, int(field.is_in_row)) for field in FIELDS)
_encode = msgspec.json.encode

if SOURCE.exists() and f"{zlib.crc32(SOURCE.read_bytes()):08x}" != _native.SOURCE:
    raise ImportError("topics.codec._native was compiled from another source")
if (_native.LIMITS, _native.FIELDS) != (LIMITS, NAMED_FIELDS):
    raise ImportError("topics.codec._native was compiled with other limits")


def explain(body: bytes, note: Note, *, key: bytes | None = None, publish: bool = False) -> Write:
    """The write in a body; raises `ApiError` for the first mistake."""
    # Without the names that are left out, the request has no mistake any more.
    (write,) = decode([_body_of(mistakes.explain(body, note, key=key, publish=publish))])
    assert write is not None
    return write


def _body_of(write: python.Write) -> bytes:
    """The append request that says the same as this write."""
    records = []
    for index, value in enumerate(write.columns.values):
        record = [b'{"data":', value]
        for field, column in zip(FIELDS, write.columns.names, strict=False):
            if column is not None and column[index] is not None:
                record += (b',"%b":' % field.name.encode(), _encode(column[index]))
        if write.columns.metas is not None and (meta := write.columns.metas[index]) is not None:
            record += (b',"meta":', meta)
        records.append(b"".join((*record, b"}")))
    options = {
        "idempotency_key": None if write.key is None else write.key.decode(),
        "create": write.create,
        "config": None if write.config is None else msgspec.Raw(write.config),
        "disable_backpressure": write.patient,
        "return_seqs": write.return_seqs,
    }
    return b'%b,"records":[%b]}' % (_encode(options)[:-1], b",".join(records))

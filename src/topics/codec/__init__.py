"""Append requests to rows: a request body is decoded once, and its records are rendered once.

    decode(bodies) -> writes          encode(writes, first_seq, ts) -> rows, and the payload of their frame
    explain(body, note): the first mistake in a request for which `decode` returns None

Two implementations give the same results, byte for byte: `native` is compiled from C, and `python` is used
where it is missing. The environment variable TOPICS_TEST_CODEC chooses one of them.
"""

import os
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from topics.codec.append_body import MANY_KEYS_BYTES, MAX_DEPTH, check_meta_keys
from topics.codec.large_json import LARGE_BYTES, Cut, ItemLimits, compact_in_steps, cut_out, without_records
from topics.codec.stored import StoredRows, plain_parts
from topics.core import NameColumns

# A test or a benchmark chooses a codec with this environment variable.
SWITCH = "TOPICS_TEST_CODEC"


def _chosen() -> str:
    asked = os.environ.get(SWITCH, "")
    if asked not in ("", "native", "python"):
        raise ImportError(f"{SWITCH} must be native or python, not {asked!r}")
    if asked == "python":
        return "python"
    try:
        import topics.codec.native
    except ImportError as error:
        if asked == "native":
            raise ImportError(f"{SWITCH} is native, but the codec is not: {error}") from None
        return "python"
    return "native"


NAME = _chosen()

if TYPE_CHECKING or NAME == "python":
    from topics.codec.frames import find_frames, frame_parts
    from topics.codec.mistakes import explain
    from topics.codec.pages import alive, page
    from topics.codec.python import Rows, Write, decode, encode, from_columns
else:
    from topics.codec.native import (
        Rows,
        Write,
        alive,
        decode,
        encode,
        explain,
        find_frames,
        frame_parts,
        from_columns,
        page,
    )


# Rows that were encoded now, or read back from a frame.
AnyRows: TypeAlias = Rows | StoredRows


def from_values(
    data: Sequence[bytes],
    metas: list[bytes | None] | None,
    names: NameColumns,
) -> Write:
    """The records of these columns, which are checked."""
    offsets = array("i", accumulate(map(len, data), initial=0))
    write = from_columns(b"".join(data), offsets, metas, names, checked=True)
    assert write is not None
    return write


def seqs(first: int, count: int) -> bytes:
    """Return `count` consecutive seqs as a JSON array."""
    return msgspec.json.encode([*range(first, first + count)])


__all__ = [
    "LARGE_BYTES",
    "MANY_KEYS_BYTES",
    "MAX_DEPTH",
    "NAME",
    "SWITCH",
    "AnyRows",
    "Cut",
    "ItemLimits",
    "Rows",
    "StoredRows",
    "Write",
    "alive",
    "check_meta_keys",
    "compact_in_steps",
    "cut_out",
    "decode",
    "encode",
    "explain",
    "find_frames",
    "frame_parts",
    "from_columns",
    "from_values",
    "page",
    "plain_parts",
    "seqs",
    "without_records",
]

"""The accelerator: inner loops of the write path in C, where they were compiled.

It is optional. Everything it does is done in Python as well, with the same result byte for byte: that is what
`native` being None means. The sources beside this file are compiled by `scripts/accelerate.py`, in a clone
and whenever a wheel is built, where there is a C compiler.

What a write says wrong, or says in an unusual way, the accelerator leaves to Python, which has the words.
"""

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topics.values.settings import (
    MAX_BATCH_RECORDS,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_TAG_BYTES,
)

SOURCES = tuple(
    Path(__file__).with_name(name)
    for name in ("accelerator.h", "accelerator.c", "sockets.c", "together.c", "keys.c")
)
# "off" for tests and benchmarks that want to see the server without it.
SWITCH = "TOPICS_TEST_ACCELERATOR"
# Fewer keys than the limit fit into this many bytes, so shorter metas need no counting.
MANY_KEYS_BYTES = MAX_META_KEYS * 5
LIMITS = (MAX_BATCH_RECORDS, MAX_RECORD_BYTES, MAX_TAG_BYTES, MAX_NODE_BYTES, MANY_KEYS_BYTES)


def source_mark() -> str:
    """Tells one source from another: what was compiled from an older one is not used."""
    if not all(source.exists() for source in SOURCES):
        return ""
    return f"{zlib.crc32(b''.join(source.read_bytes() for source in SOURCES)):08x}"


def _load() -> tuple[Any, str]:
    if os.environ.get(SWITCH) == "off":
        return None, "switched off"
    try:
        import topics.values._accelerator as _accelerator
    except ModuleNotFoundError:
        return None, "not compiled"
    except ImportError:
        # As where the C library is older than that of the machine that compiled it.
        return None, "cannot be loaded here"
    if source_mark() not in ("", _accelerator.SOURCE) or _accelerator.LIMITS != LIMITS:
        return None, "compiled from another source"
    return _accelerator, ""


# The compiled module, or None, and why there is none.
native, why_not = _load()

if TYPE_CHECKING:
    from topics.values._accelerator import Records as Records
elif native is not None:
    Records = native.Records
else:

    class Records:
        """There are none without it."""


def described() -> str:
    """For `topics --version`."""
    return "yes" if native is not None else f"no ({why_not})"

"""The 32 bytes that every journal, segment and snapshot begins with.

    magic 8 | format u32 | mark u32 | value u64 | checksum u64

The meaning of `value` and `mark` depends on the kind of file. The checksum covers the 24 bytes before it, and
other bytes if the kind of file adds some.

All files of a directory have one format. Any change that another version of the program would misread raises
it, and no version reads the format of another.
"""

import struct

from xxhash import xxh3_64_intdigest

from topics.core import Explained
from topics.storage.filesystem import Buffer


def checksum(*buffers: Buffer) -> int:
    value = 0
    for buffer in buffers:
        value = xxh3_64_intdigest(buffer, value)
    return value


# 1 and 2 were formats of versions that no release contained.
FORMAT = 4
_FIXED = struct.Struct("<8sIIQ")
_DIGEST = struct.Struct("<Q")
FILE_HEADER_BYTES = _FIXED.size + _DIGEST.size


class ForeignFile(Explained):
    """An intact file that must not be read here. Code that took it for damaged would destroy it."""


class OtherFormat(ForeignFile):
    """Another version of the program has written the file, or the directory."""

    def __init__(self, what: str, found: int) -> None:
        super().__init__(explain_format(what, found))
        self.found = found


def explain_format(what: str, found: int) -> str:
    return (
        f"{what} has format {found}, and this version of topics reads only format {FORMAT}: read its topics"
        " with the version that wrote it (topics read, or an archive), and load them into a new directory"
    )


def encode(magic: bytes, value: int, *covered: Buffer, mark: int = 0) -> bytes:
    fixed = _FIXED.pack(magic, FORMAT, mark, value)
    return fixed + _DIGEST.pack(checksum(fixed, *covered))


def decode(data: Buffer, magic: bytes, *covered: Buffer) -> int | None:
    """Return the header's value, or None for a file that is not an intact one of this kind."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    found_magic, found_format, _, value = _FIXED.unpack_from(data, 0)
    (digest,) = _DIGEST.unpack_from(data, _FIXED.size)
    if found_magic != magic or checksum(bytes(data[: _FIXED.size]), *covered) != digest:
        return None
    # A format under a checksum that does not match says nothing.
    if found_format != FORMAT:
        raise OtherFormat(f"a {magic.decode()} file", found_format)
    return int(value)


def mark_of(header: Buffer) -> int:
    """The mark in a header that is known to be intact."""
    return int(_FIXED.unpack_from(header, 0)[2])

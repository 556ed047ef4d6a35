"""The 32 bytes that every journal, segment and snapshot begins with.

    magic 8 | version u32 | mark u32 | value u64 | checksum u64

What `value` means is up to the format; `mark` is 0, except in segments that lie in a cold directory. The
checksum covers the 24 bytes before it, then whatever else the format puts under it.
"""

import struct

from xxhash import xxh3_64_intdigest

from topics.storage.filesystem import Buffer
from topics.values import Explained


def checksum(*buffers: Buffer) -> int:
    value = 0
    for buffer in buffers:
        value = xxh3_64_intdigest(buffer, value)
    return value


_FIXED = struct.Struct("<8sIIQ")
_DIGEST = struct.Struct("<Q")
FILE_HEADER_BYTES = _FIXED.size + _DIGEST.size


class ForeignFile(Explained):
    """The file is intact, but not what we may read here: to treat it as damaged would destroy it."""


def encode(magic: bytes, version: int, value: int, *covered: Buffer, mark: int = 0) -> bytes:
    fixed = _FIXED.pack(magic, version, mark, value)
    return fixed + _DIGEST.pack(checksum(fixed, *covered))


def decode(data: Buffer, magic: bytes, version: int, *covered: Buffer, newest: int = 0) -> int | None:
    """The header's value, or None when the file is not an intact one of this format.

    `newest`: the last version that is read, if there are several.
    """
    if len(data) < FILE_HEADER_BYTES:
        return None
    found_magic, found_version, _, value = _FIXED.unpack_from(data, 0)
    (digest,) = _DIGEST.unpack_from(data, _FIXED.size)
    if found_magic != magic or checksum(bytes(data[: _FIXED.size]), *covered) != digest:
        return None
    # Only now: a version under a checksum that does not fit says nothing.
    newest = max(version, newest)
    if not version <= found_version <= newest:
        readable = f"version {version}" if newest == version else f"versions {version} to {newest}"
        raise ForeignFile(
            f"a {magic.decode()} file has version {found_version}; this release reads {readable}"
        )
    return int(value)


def version_of(header: Buffer) -> int:
    """The version in a header that is known to be intact."""
    return int(_FIXED.unpack_from(header, 0)[1])


def mark_of(header: Buffer) -> int:
    """The mark in a header that is known to be intact."""
    return int(_FIXED.unpack_from(header, 0)[2])

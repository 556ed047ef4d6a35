"""Snapshots: where recovery starts instead of at the beginning of time.

    <number>.snapshot:  magic 8 | version u32 | 0 u32 | length u64 | checksum u64 | MessagePack body

Written whole to a temporary file, synced, renamed, directory synced. The two newest are kept: a damaged
one is passed over for the one before it, whose journal and segments are still there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from topics.storage.checksum import checksum
from topics.storage.filesystem import Filesystem, write_file_atomically

MAGIC = b"TOPICSSN"
VERSION = 1
SUFFIX = ".snapshot"
KEPT = 2
_HEADER = struct.Struct("<8sIIQQ")


def file_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def encode(body: bytes) -> list[bytes]:
    return [_HEADER.pack(MAGIC, VERSION, 0, len(body), checksum(body)), body]


def decode(data: bytes) -> bytes | None:
    """The body, or None when the file is not an intact snapshot."""
    if len(data) < _HEADER.size:
        return None
    magic, version, _, length, digest = _HEADER.unpack_from(data, 0)
    body = data[_HEADER.size :]
    if magic != MAGIC or version != VERSION or len(body) != length or checksum(body) != digest:
        return None
    return body


class SnapshotStore:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._numbers = [
            int(name[: -len(SUFFIX)])
            for name in fs.list(directory)
            if name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdigit()
        ]

    def newest_first(self) -> Iterator[bytes]:
        """Bodies of the intact snapshots; damaged ones are passed over."""
        for number in sorted(self._numbers, reverse=True):
            file = self._fs.open(os.path.join(self._directory, file_name(number)))
            data = file.read(file.size(), 0)
            file.close()
            body = decode(data)
            if body is not None:
                yield body

    @property
    def any_on_disk(self) -> bool:
        return bool(self._numbers)

    def write(self, body: bytes) -> None:
        number = max(self._numbers, default=0) + 1
        write_file_atomically(self._fs, self._directory, file_name(number), encode(body))
        self._numbers.append(number)
        for old in sorted(self._numbers)[:-KEPT]:
            self._fs.remove(os.path.join(self._directory, file_name(old)))
            self._numbers.remove(old)
